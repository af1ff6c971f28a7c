# What a GPU machine would run (scripts/gpu.sh), from a folder with nothing but the pack and
# without this environment, on emulated kernels and tiny shapes: every part but torch's.
. "$(dirname "$0")/../common.sh"
make --no-print-directory emu
LIBRARY=bin/libmt_cudaemu.so sh scripts/cuda-pack.sh
trap 'rm -rf "$work" bin/gpu' EXIT
cp -r bin/gpu "$work/pack"
cd /
env -i PATH=/usr/bin:/bin EMU="$work/pack/libmt_cudaemu.so" sh "$work/pack/gpu.sh" all "$work/out" || { cat "$work/out/log.txt"; exit 1; }
cat "$work/out/ladder.txt"
