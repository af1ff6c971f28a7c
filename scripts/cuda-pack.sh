# Puts all that a GPU machine needs into bin/gpu: no Go, no compiler and no network are
# wanted there, only a driver. Called by make gpu-pack. LIBRARY is another kernel library.
set -eu
cd "$(dirname "$0")/.."
rm -rf bin/gpu
mkdir -p bin/gpu
cp bin/monotron "${LIBRARY:-bin/libmt_cuda.so}" scripts/gpu.sh scripts/cuda-torch.py bench/torch_gpt.py bin/gpu/
${GO:-go} test -c -ldflags '-s -w' -o bin/gpu/cuda.test ./csrc/cuda/
for case in $(sh scripts/golden-cases.sh); do
  mkdir -p bin/gpu/golden
  cp -r "$case" bin/gpu/golden/
done
du -sh bin/gpu
echo "wants $(cat bin/gpu/monotron bin/gpu/*.so | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1) or newer"
