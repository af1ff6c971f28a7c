# Has a real cuDNN build plans for our attention graphs, for an H200, an A100 and a B200 that
# are not there: it recognises the graphs, chooses engines (on the B200 it is told which),
# compiles kernels. No GPU and no driver is wanted.
# CUDNN: a libcudnn.so.9 (9.8 or newer); without it NVIDIA's wheels are fetched into .tools/cudnn.
set -eu
cd "$(dirname "$0")/.."
command -v g++ >/dev/null || { echo "skipped: no g++ here"; exit 0; }
if [ -z "${CUDNN:-}" ]; then
  CUDNN=.tools/cudnn/nvidia/cudnn/lib/libcudnn.so.9
  if [ ! -e "$CUDNN" ] && ! python3 -m pip install -q --root-user-action=ignore --target .tools/cudnn nvidia-cudnn-cu13 nvidia-cuda-nvrtc; then
    rm -rf .tools/cudnn
    echo "skipped: no cuDNN here (CUDNN names one), and NVIDIA's wheels could not be fetched"
    exit 0
  fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" csrc/cuda/fake/library/driver.c
g++ -std=c++17 -O1 -o "$work/plans" -x c++ csrc/cuda/fake/library/plans.cpp csrc/cuda/cudnn_graph.cu csrc/cuda/cudnn_plan.cu csrc/cuda/cudnn_attention.cu -ldl
lib=$(cd "$(dirname "$CUDNN")" && pwd)
# Beside cuDNN's wheel lie those of cuBLAS and NVRTC, in cu13/lib or in folders of their own.
near=$(ls -d "$lib"/../../cu13/lib "$lib"/../../*/lib 2>/dev/null | tr '\n' ':')
LD_LIBRARY_PATH="$work:$lib:$near${LD_LIBRARY_PATH:-}" "$work/plans" "$lib/libcudnn.so.9"
