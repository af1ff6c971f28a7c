# Runs the CUDA kernels' cases on this CPU; called by make test-emu. QUICK=1: the f32 and
# bf16 cases in one order of threads, for make test; else all of them, and again in two
# other orders, which must give the same bits. Then the trainer on them, also with --layout-invariant.
set -eu
cd "$(dirname "$0")/.."
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
# Some tests open a copy of the library: its thread-local data are the linker's to place, who has room for ten copies.
export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
if [ -n "${QUICK:-}" ]; then
  $GO test -count=1 -v -short -timeout 20m -skip 'TestValues/.*/^f16' ./csrc/cuda/ > "$log" 2>&1 || status=$?
else
  $GO test -count=1 -v -timeout 60m ./csrc/cuda/ > "$log" 2>&1 || status=$?
fi
if [ $status = 0 ]; then
  grep -E '^ok|cases by the stand-in' "$log"
else
  grep -vE '^ *(=== |--- (PASS|SKIP)|PASS$)' "$log" || true
fi
echo "$(grep -cE '^        --- PASS: TestValues/' "$log" || true) cases of the emulated kernels agree with the oracle, $(grep -cE '^        --- PASS: TestDrawn/' "$log" || true) of drawn shapes too, $(grep -cE '^        --- PASS: TestOrderOfThreads/' "$log" || true) have the same bits in three orders of threads, $(grep -cE '^        --- PASS: TestGraphsOfOps/' "$log" || true) as graphs"
[ $status = 0 ] || exit $status
$GO test -count=1 -run 'Graph|Attention|Exhausted|ProductsChosenAlike' ./megatron/training/ ./megatron/engine/
$GO test -count=1 -run FuseAttention ./megatron/model/
$GO test -count=1 -timeout 60m -run OnCUDA ./tools/verify/layouts/
[ -n "${QUICK:-}" ] || $GO test -count=1 -timeout 10m -run StallOnGPU ./tests/
sh scripts/cuda-layouts.sh
