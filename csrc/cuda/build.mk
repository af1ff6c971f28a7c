# Builds the kernel library, from the repository's root:
#   make -f csrc/cuda/build.mk emu    bin/libmt_cudaemu.so: the kernels on this CPU, for tests (g++)
#   make -f csrc/cuda/build.mk cuda   bin/libmt_cuda.so: for GPUs (nvcc, see scripts/cuda-tools.sh)
# CHECK=thread or address adds a checker to the emulated one, which then has a name of its own.

KERNELS := $(wildcard csrc/cuda/*.cu)
HEADERS := $(wildcard csrc/cuda/*.h csrc/cuda/emu/*.h) csrc/device/device.h csrc/device/ops.h csrc/cuda/build.mk
EMULATOR := $(filter-out csrc/cuda/emu/checks.cpp csrc/cuda/emu/replay.cpp,$(wildcard csrc/cuda/emu/*.cpp))

CXX      ?= g++
CHECK    ?=
SUFFIX   := $(if $(CHECK),-$(CHECK))
EMU_DIR  := .tools/build/emu$(SUFFIX)
EMU_LIB  := bin/libmt_cudaemu$(SUFFIX).so
CXXFLAGS := -std=c++17 -O2 -g0 -Wall -fPIC -fno-strict-aliasing -ffp-contract=off -fvisibility=hidden
CHECKED  := $(if $(CHECK),-fsanitize=$(CHECK) -g1)
EMU_OBJECTS := $(KERNELS:csrc/cuda/%.cu=$(EMU_DIR)/%.o) $(EMULATOR:csrc/cuda/emu/%.cpp=$(EMU_DIR)/emu-%.o)

NVCC      ?= $(firstword $(wildcard .tools/cuda/nvidia/cu13/bin/nvcc) $(shell command -v nvcc) nvcc)
CUDA_DIR  := .tools/build/cuda
CUDA_LIB  := bin/libmt_cuda.so
ARCHS     ?= 80 90a 100
GENCODE   := $(foreach a,$(ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) -gencode=arch=compute_90,code=compute_90
NVCCFLAGS := -std=c++17 -O3 $(GENCODE) -Xptxas=-v -Xcompiler -fPIC,-fvisibility=hidden -DMT_ARCHITECTURES='"$(foreach a,$(ARCHS),sm_$(a)) and PTX of compute_90"'
CUDA_OBJECTS := $(KERNELS:csrc/cuda/%.cu=$(CUDA_DIR)/%.o)

.PHONY: emu cuda
emu: $(EMU_LIB)
cuda: $(CUDA_LIB)

$(EMU_LIB): $(EMU_OBJECTS)
	@mkdir -p $(@D)
	$(CXX) -shared $(CXXFLAGS) $(CHECKED) -pthread -o $@.tmp $^ -ldl
	@mv $@.tmp $@

$(EMU_DIR)/%.o: csrc/cuda/%.cu $(HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(CHECKED) -Wno-unknown-pragmas -DMT_EMU -x c++ -c -o $@ $<

$(EMU_DIR)/emu-%.o: csrc/cuda/emu/%.cpp $(HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(if $(CHECK),-DMT_WATCH_$(CHECK)) -c -o $@ $<

# What ptxas says of each kernel is kept beside the object: scripts/cuda-kernels.sh reads it.
$(CUDA_DIR)/%.o: csrc/cuda/%.cu $(HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -c -o $@ $< 2> $(@:.o=.txt) || { cat $(@:.o=.txt) >&2; exit 1; }
	@grep -E 'warning|error' $(@:.o=.txt) >&2 || true

$(CUDA_LIB): $(CUDA_OBJECTS)
	@mkdir -p $(@D)
	$(NVCC) -shared $(GENCODE) -L$(dir $(NVCC))../lib -cudart static -o $@.tmp $^ -ldl
	@mv $@.tmp $@
