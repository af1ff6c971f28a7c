# Builds the kernel library, from the repository's root:
#   make -f csrc/cuda/build.mk emu    bin/libmt_cudaemu.so: the kernels on this CPU, for tests (g++)
#   make -f csrc/cuda/build.mk kernels    its objects alone, for ARCHS
#   make -f csrc/cuda/build.mk cuda   bin/libmt_cuda.so: for GPUs (nvcc, see scripts/cuda-tools.sh)
# CHECK=thread, address or alignment adds a checker to the emulated one, which then has a name of its own.

KERNELS := $(wildcard csrc/cuda/*.cu)
HEADERS := $(wildcard csrc/cuda/*.h csrc/cuda/emu/*.h csrc/device/*.h) csrc/cuda/build.mk
EMULATOR := $(filter-out csrc/cuda/emu/checks.cpp csrc/cuda/emu/replay.cpp,$(wildcard csrc/cuda/emu/*.cpp))

CXX      ?= g++
CHECK    ?=
SUFFIX   := $(if $(CHECK),-$(CHECK))
EMU_DIR  := bin/build/emu$(SUFFIX)
EMU_LIB  := bin/libmt_cudaemu$(SUFFIX).so
CXXFLAGS := -std=c++17 -O2 -g0 -Wall -fPIC -fno-strict-aliasing -ffp-contract=off -fvisibility=hidden
CHECKED  := $(if $(CHECK),-fsanitize=$(CHECK) -g1) $(if $(filter alignment,$(CHECK)),-fno-sanitize-recover=alignment)
EMU_OBJECTS := $(KERNELS:csrc/cuda/%.cu=$(EMU_DIR)/%.o) $(EMULATOR:csrc/cuda/emu/%.cpp=$(EMU_DIR)/emu-%.o)

NVCC      ?= $(firstword $(wildcard .tools/cuda/nvidia/cu13/bin/nvcc) $(shell command -v nvcc) nvcc)
EVERY     := 80 90a 100
CUDA_LIB  := bin/libmt_cuda.so
ARCHS     ?= $(EVERY)
CUDA_DIR  := bin/build/cuda$(if $(filter-out $(ARCHS),$(EVERY)),-$(firstword $(ARCHS)))
GENCODE   := $(foreach a,$(ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) $(if $(filter-out $(ARCHS),$(EVERY)),,-gencode=arch=compute_90,code=compute_90)
NVCCFLAGS := -std=c++17 -O3 $(GENCODE) -Xptxas=-v -Xcompiler -fPIC,-fvisibility=hidden -DMT_ARCHITECTURES='"$(foreach a,$(ARCHS),sm_$(a)) and PTX of compute_90"'
CUDA_OBJECTS := $(KERNELS:csrc/cuda/%.cu=$(CUDA_DIR)/%.o)

COMPILED  := sh scripts/compiled.sh

.PHONY: emu cuda kernels
emu: $(EMU_LIB)
cuda: $(CUDA_LIB)
kernels: $(CUDA_OBJECTS)

$(EMU_LIB): $(EMU_OBJECTS)
	@mkdir -p $(@D)
	$(CXX) -shared $(CXXFLAGS) $(CHECKED) -pthread -o $@.tmp $^ -ldl
	@mv $@.tmp $@

$(EMU_DIR)/%.o: csrc/cuda/%.cu $(HEADERS)
	@$(COMPILED) $@ $^ -- $(CXX) $(CXXFLAGS) $(CHECKED) -Wno-unknown-pragmas -DMT_EMU -x c++ -c

$(EMU_DIR)/emu-%.o: csrc/cuda/emu/%.cpp $(HEADERS)
	@$(COMPILED) $@ $^ -- $(CXX) $(CXXFLAGS) $(if $(CHECK),-DMT_WATCH_$(CHECK)) -c

# What ptxas says of each kernel is kept beside the object: scripts/cuda-kernels.sh reads it.
$(CUDA_DIR)/%.o: csrc/cuda/%.cu $(HEADERS)
	@$(COMPILED) $@ $^ -- $(NVCC) $(NVCCFLAGS) -c

$(CUDA_LIB): $(CUDA_OBJECTS)
	@mkdir -p $(@D)
	$(NVCC) -shared $(GENCODE) -L$(dir $(NVCC))../lib -cudart static -o $@.tmp $^ -ldl
	@mv $@.tmp $@
