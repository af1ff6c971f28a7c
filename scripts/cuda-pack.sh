# Puts all that a GPU machine needs into bin/gpu: no Go, no compiler and no network are
# wanted there, only a driver. Called by make gpu-pack. LIBRARY is another kernel library. It
# ends with an error where pack and tree are larger than MOST (64) MiB, as much as may travel.
# All but the script is in one archive, which the script unpacks there.
set -eu
cd "$(dirname "$0")/.."
all=bin/build/gpu
rm -rf bin/gpu $all
mkdir -p bin/gpu $all
cp bin/monotron "${LIBRARY:-bin/libmt_cuda.so}" scripts/cuda-torch.py scripts/bench/torch_gpt.py $all/
${GO:-go} test -c -o $all/cuda.test ./csrc/cuda/
${GO:-go} test -c -o $all/nccl.test ./csrc/comm/nccl/
sed -nE 's/.*: +describe\[.*\]\("([a-z0-9_]+)"\).*/\1/p' csrc/device/ops.go | tr '\n' ' ' | sed 's/ $//' > $all/ops.txt
for case in $(sh scripts/golden-cases.sh); do
  mkdir -p $all/golden
  cp -r "$case" $all/golden/
done
tar -C $all -czf bin/gpu/pack.tar.gz .
cp scripts/gpu.sh bin/gpu/
wants=$(cat $all/monotron $all/*.so | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
driver=$(cat $all/*.so | grep -aoE 'needs driver [0-9.]+ or newer' | head -1)
largest=$(find $all -type f -printf '%s %f\n' | sort -rn | head -4 | awk '{ printf "%6.1f MiB %s\n", $1 / 1048576, $2 }')
rm -rf $all
pack=$(du -sb bin/gpu | cut -f1)
tree=$({ git ls-files -coz --exclude-standard 2> /dev/null | xargs -0 -r du -cb --no-dereference 2> /dev/null || true; } | awk '$2 == "total" { n += $1 } END { print n + 0 }')
echo "bin/gpu: $((pack >> 20)) MiB, the tree beside it $((tree >> 20)) MiB"
echo "wants $wants or newer, ${driver#needs }"
if [ $((pack + tree)) -gt $((${MOST:-64} << 20)) ]; then
  echo "together they are over ${MOST:-64} MiB and may not travel; the largest files of the pack, before it is packed:
$largest" >&2
  echo "make gpu-pack ARCHS=90a has kernels for one architecture alone; MONOTRON_SHARED=/nowhere leaves the golden cases out" >&2
  exit 65
fi
