# Runs the CUDA kernels' cases on this CPU; called by make test-emu. The whole table runs
# once; ORDERS names further schedules (csrc/cuda/emu/schedule.h), under each of which the
# kernels that threads share memory in run again.
set -eu
cd "$(dirname "$0")/.."
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
$GO test -count=1 ./csrc/cuda/...
for order in ${ORDERS-reverse,fair,early random,greedy,late}; do
  echo "order of threads: $order"
  MONOTRON_EMU=$order $GO test -count=1 -short -run 'TestValues/(matmul|norm|attention|embedding|column|cross_entropy_stats|grad_stats)' ./csrc/cuda/
done
