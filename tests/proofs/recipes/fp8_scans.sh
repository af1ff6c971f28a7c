# FP8 on the projections of state-space scans is what torch makes of transformers' Mamba2 with the same operands of 8 bits: loss and
# norm of the gradient of a step, which FP8 moves by more than a thousand times of what they are off.
. "$(dirname "$0")/../common.sh"
peer torch transformers
from=tools/verify/modelcase/testdata/mamba2
mkdir -p "$work/base"
cp "$from/config.json" "$work/base"
cp "$from/weights.safetensors" "$work/base/model.safetensors"
for i in 0 7 19 30; do
  echo "{\"input_ids\": [$(for k in $(seq 0 15); do echo $(((i * 5 + k * k * 3 + k * i) % 64)); done | paste -sd,)]}"
done >"$work/rows.jsonl"
train() { # log, flags: a step
  local log=$1
  shift
  bin/pretrain_gpt --finetune-data "$work/rows.jsonl" --load "$work/base" --tokenizer-type NullTokenizer --vocab-size 64 --micro-batch-size 4 --global-batch-size 4 --seq-length 16 --train-iters 1 \
    --lr 1e-3 --min-lr 1e-3 --no-data-shuffle --clip-grad 0 --log-jsonl "$log" "$@" >"$work/log" 2>&1 || { tail -3 "$work/log"; exit 1; }
}
train "$work/eight.jsonl" --fp8-format hybrid --fp8-recipe tensorwise
train "$work/plain.jsonl"
"$python" -W ignore tests/proofs/recipes/fp8_scans.py "$work" 2>/dev/null || { echo FAILED; exit 1; }
