# The whole trainer on the emulated kernels: the golden model cases, of one rank and of several
# (5 minutes); and a run that is stopped and resumed has the losses of one that was not, digit
# for digit.
. "$(dirname "$0")/../common.sh"
make --no-print-directory emu
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
cases=$(sh scripts/golden-cases.sh)
[ -n "$cases" ] || echo "skipped: no golden cases beside this repository"
for case in $cases; do
  said=$(bin/monotron verify case --device cuda "$case" 2>&1) || { echo "$said"; echo "FAILED: $case"; exit 1; }
  echo "$(basename "$case"): $(echo "$said" | tail -1)"
done
tiny="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4
  --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 63 --bf16 --hidden-dropout 0.1 --attention-dropout 0.1 --eval-iters 0
  --log-interval 1 --seed 1 --train-iters 4 --device cuda"
losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([0-9.E+-]+).*/\1 \2/p' "$@"; }
bin/pretrain_gpt $tiny > "$work/whole"
bin/pretrain_gpt $tiny --save "$work/ckpt" --save-interval 2 --exit-interval 2 > "$work/first"
bin/pretrain_gpt $tiny --save "$work/ckpt" --save-interval 2 --load "$work/ckpt" > "$work/second"
losses "$work/whole" > "$work/a"
losses "$work/first" "$work/second" > "$work/b"
cat "$work/a"
[ "$(wc -l < "$work/a")" = 4 ]
diff "$work/a" "$work/b"
echo "stopped and resumed: the same losses"
# GRPO: the sampling of an answer and the step that learns it give every token the same bits.
for i in $(seq 1 6); do echo "{\"prompt\": \"Count $i and\"}"; done >"$work/prompts.jsonl"
mkdir "$work/base"
cp "$shared/golden/dpo/config.json" "$shared/golden/chat/tokenizer.json" "$work/base"
cp "$shared/golden/dpo/weights.safetensors" "$work/base/model.safetensors"
for precision in "" --bf16; do
  bin/pretrain_gpt --finetune-data "$work/prompts.jsonl" --tuning grpo --reward-pattern a --load "$work/base" --micro-batch-size 4 --global-batch-size 16 --grpo-group-size 4 \
    --seq-length 64 --max-completion-length 24 --train-iters 2 --lr 1e-3 --log-interval 1 --device cuda $precision 2>/dev/null | grep -o 'sampling logp difference max: 0.0000' |
    uniq -c | grep -q '2 sampling' && echo "GRPO $precision: the ratio is exactly 1" || { echo "FAILED: GRPO $precision"; exit 1; }
done
