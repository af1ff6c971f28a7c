# kill -9 at COUNT random moments of each of METHODS, each followed by a resume: the final losses and weights must equal those of a
# run that nothing disturbed, every time. Tuned are adapters: by examples (sft), also DoRA, over NF4 weights, with an output norm and
# biases in full, and in checkpoints without the base; by preferences (dpo, kto); by rewards (grpo), whose steps 2 and 3
# of three learn from answers that a checkpoint holds. SEED repeats the moments.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/dpo"
COUNT=${COUNT:-12} SEED=${SEED:-1} DEVICE=${DEVICE:-auto} METHODS=${METHODS:-sft dora nf4 saved apart dpo kto grpo}
base=$work/base
mkdir -p "$base"
cp "$shared/golden/dpo/config.json" "$shared/golden/sft/chat_template.jinja" "$shared/golden/chat/tokenizer.json" "$base"
cp "$shared/golden/dpo/weights.safetensors" "$base/model.safetensors"
for i in $(seq 1 20); do echo "{\"prompt\": \"Count $i and\"}"; done >"$work/prompts.jsonl"

flags() { # folder: one flag or value a line
  printf '%s\n' "${rows[@]}" --load "$base" --resume-from-save --save "$1" --save-interval 4 --log-interval 1 --log-jsonl "$1.jsonl" --seq-length 64 \
    --train-iters 40 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --seed 7 --lora-rank 4 --device "$DEVICE"
}
examples=(--finetune-data "$shared/golden/sft/messages.jsonl" --micro-batch-size 2 --global-batch-size 8 --finetune-packing bfd)
pairs=(--finetune-data "$shared/golden/dpo/messages.jsonl" --micro-batch-size 2 --global-batch-size 8)
for method in $METHODS; do
  case $method in
    sft) rows=("${examples[@]}") ;;
    dora) rows=("${examples[@]}" --use-dora) ;;
    nf4) rows=("${examples[@]}" --quantize-base nf4 --double-quant) ;;
    saved) rows=("${examples[@]}" --lora-target-modules "q_proj,down_proj" --lora-modules-to-save norm --lora-train-bias all) ;;
    apart) rows=("${examples[@]}" --save-adapter-only) ;;
    dpo) rows=(--tuning dpo "${pairs[@]}") ;;
    kto) rows=(--tuning kto "${pairs[@]}") ;;
    grpo) rows=(--tuning grpo --finetune-data "$work/prompts.jsonl" --micro-batch-size 4 --global-batch-size 16 --grpo-group-size 4 --grpo-iterations 3
      --max-completion-length 16 --reward-pattern a --grpo-kl-beta 0.05) ;;
    *) echo "there is no method $method"; exit 2 ;;
  esac
  echo "$method:"
  (kills "$COUNT" "$SEED")
  rm -rf "$work"/whole* "$work"/k "$work"/k.*
done
