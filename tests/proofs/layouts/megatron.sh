# The real Megatron's layouts: losses, gradients, curves, shards, order of a step.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/model"
for dir in "$shared"/golden/model/megatron-gpt2-* "$shared"/golden/model/megatron-llama-* "$shared/golden/model/pipeline-orders"; do
  for device in ref cpu; do
    printf '%s on %s: ' "$(basename "$dir")" $device
    bin/monotron verify case "$dir" --device $device | tail -1
  done
done
