# make bench: GPT-2 124M, one training step as a fraction of this machine's peak.
set -eu
cd "$(dirname "$0")/.."
for flag in "" --bf16; do
  bin/monotron bench --model gpt2-124m --micro-batch-size 4 --seq-length 512 $flag
done
