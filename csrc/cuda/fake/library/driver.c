/* A libcuda.so.1 for machines without a GPU, with what cuDNN needs of a driver to build
 * plans for a device that is only described: kernels are compiled, "loaded" and never run. */
#define SAY(name) int name(void) { return 100; } /* no device */
#define FINE(name) int name(void) { return 0; }
#define MAKES(name) int name(void **out) { *out = out; return 0; }
#define TELLS(name, value) int name(int *out) { *out = value; return 0; }
#define NAMES(name) int name(int e, const char **out) { *out = "no device"; return e - e; }

TELLS(cuDriverGetVersion, 13000)
NAMES(cuGetErrorString) NAMES(cuGetErrorName)
MAKES(cuLibraryLoadData) MAKES(cuLibraryGetKernel) MAKES(cuKernelGetFunction) MAKES(cuModuleLoadData) MAKES(cuModuleGetFunction)
FINE(cuKernelSetAttribute) FINE(cuLibraryUnload) FINE(cuModuleUnload) FINE(cuTensorMapEncodeTiled) FINE(cuTensorMapEncodeIm2col)
TELLS(cuKernelGetAttribute, 128)
SAY(cuCtxGetCurrent) SAY(cuCtxGetLimit) SAY(cuCtxPopCurrent) SAY(cuCtxPushCurrent) SAY(cuStreamGetCtx) SAY(cuDeviceGet) SAY(cuDeviceGetCount)
SAY(cuLinkCreate) SAY(cuLinkAddData) SAY(cuLinkComplete) SAY(cuLinkDestroy) SAY(cuLibraryLoadFromFile) SAY(cuLaunchKernel) SAY(cuLaunchKernelEx)
SAY(cuLaunchCooperativeKernel) SAY(cuOccupancyMaxPotentialClusterSize)
