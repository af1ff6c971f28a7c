# nvcc for make cuda: the machine's own, else NVIDIA's wheels in .tools/cuda. Called by
# the Makefile; does nothing where a compiler is.
set -eu
cd "$(dirname "$0")/.."
[ -x .tools/cuda/nvidia/cu13/bin/nvcc ] && exit 0
if command -v nvcc >/dev/null && nvcc --version | grep -Eq 'release (12\.(8|9)|13)'; then exit 0; fi
echo "no nvcc of CUDA 12.8 or newer here: fetching CUDA 13.0's compiler (105 MB) into .tools/cuda" >&2
# Pinned through cuda-toolkit: plain nvidia-cuda-nvcc pulls a newer nvvm, whose PTX its ptxas refuses.
if ! python3 -m pip install -q --root-user-action=ignore --target .tools/cuda 'cuda-toolkit[nvcc,nvvm,crt,cccl,cudart,nvtx]==13.0.2'; then
  rm -rf .tools/cuda
  echo "it could not be fetched (no network, or no pip for python3); the CUDA library cannot be built here, everything else can" >&2
  exit 1
fi
