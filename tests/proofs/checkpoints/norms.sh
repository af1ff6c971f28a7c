# Models trained with --apply-layernorm-1p, written for families whose norms are without it: transformers gives our
# logits, and a run with the flag that starts from what was written has them again.
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors
common="--seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 20 --lr 2e-2 --eval-iters 0 --mock-data
  --tokenizer-type NullTokenizer --vocab-size 95 --make-vocab-size-divisible-by 1 --apply-layernorm-1p --hidden-dropout 0 --attention-dropout 0"
small="--num-layers 2 --hidden-size 48 --num-attention-heads 4"
llama="$small --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights"
declare -A shapes=(
  [gpt2]="$small"
  [gpt_neox]="$small --position-embedding-type rope --rotary-percent 0.5 --untie-embeddings-and-output-weights --no-bias-gelu-fusion --parallel-residual"
  [bloom]="$small --position-embedding-type alibi --embed-layernorm"
  [llama]="$llama"
  [qwen3]="$llama --qk-layernorm --group-query-attention --num-query-groups 2"
  [olmo2]="$llama --norm-after --qk-layernorm --qk-layernorm-whole"
  [mixtral]="$llama --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 64"
)
for family in "${!shapes[@]}"; do
  dir=$work/$family
  flags="$common ${shapes[$family]}"
  bin/pretrain_gpt $flags --save "$dir/ckpt" >"$dir.log" 2>&1 || { tail -3 "$dir.log"; echo "FAILED: $family"; exit 1; }
  bin/monotron convert --input "$dir/ckpt" --to hf --output "$dir/hf" --verify >"$dir.log" 2>&1 || { tail -3 "$dir.log"; echo "FAILED: $family"; exit 1; }
  grep -q 'written with 1 added' "$dir.log" || { cat "$dir.log"; echo "FAILED: $family has no note"; exit 1; }
  # A step at a rate of 0 stores what was loaded.
  bin/pretrain_gpt $flags --load "$dir/hf" --save "$dir/back" --train-iters 1 --lr 0 --weight-decay 0 >"$dir.log" 2>&1 || { tail -3 "$dir.log"; echo "FAILED: $family, back"; exit 1; }
  grep -q '1 is subtracted from these weights' "$dir.log" || { cat "$dir.log"; echo "FAILED: $family has no note of the way back"; exit 1; }
  for model in ckpt hf back; do
    bin/monotron logits --load "$dir/$model" --prompt-ids $(seq 1 3 90) --output "$dir/$model.safetensors" >/dev/null 2>&1
  done
  "$python" -W ignore tests/proofs/checkpoints/norms.py "$dir" "$family"
done
