# What tuning writes is read by others as it is meant: PEFT loads adapters of every kind, and its logits are those of the
# formulas and of the merged folder; transformers with bitsandbytes loads NF4 and int8 folders, int8 ones equal to its own, bit for bit;
# TRL's GRPOTrainer gives the losses that the tests have.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/qlora"
peer torch transformers peft bitsandbytes trl
export TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1
base=$work/base
mkdir -p "$base"
cp "$shared/golden/sft/config.json" "$shared/golden/sft/chat_template.jinja" "$shared/golden/chat/tokenizer.json" "$base"
cp "$shared/golden/sft/weights.safetensors" "$base/model.safetensors"

adapter() { # name, flags: 4 steps, then PEFT
  local name=$1
  shift
  bin/pretrain_gpt --finetune-data "$shared/golden/sft/messages.jsonl" --load "$base" --save "$work/$name" --micro-batch-size 4 --seq-length 64 --train-iters 4 \
    --lr 1e-2 --min-lr 1e-2 --log-interval 1 "$@" >"$work/$name.log" 2>&1 || { tail -3 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
  bin/monotron convert --input "$base" --adapter "$work/$name/adapter" --to hf --output "$work/$name-merged" 2>/dev/null >/dev/null
  "$python" "$shared/golden/tuning/check_peft.py" "$work/$name/adapter" "$base" --merged "$work/$name-merged" 2>/dev/null >"$work/$name.json" ||
    { cat "$work/$name.json"; echo "FAILED: PEFT with $name"; exit 1; }
  echo "PEFT loads $name: $(tr -d '\n' <"$work/$name.json" | cut -c1-300)"
}
adapter lora --lora-rank 4 --lora-alpha 8
adapter rslora --lora-rank 4 --use-rslora --loraplus-lr-ratio 8
adapter dora --lora-rank 4 --use-dora
adapter patterns --lora-rank 2 --lora-alpha 4 --lora-target-modules q_proj,down_proj --lora-rank-pattern layers.1.self_attn.q_proj=5 down_proj=3 --lora-alpha-pattern down_proj=12

# Adapters on more than linear layers: models without tied embeddings, trained for 4 steps, then PEFT.
parts() { # name, case of golden/model or our own, flags
  local name=$1 from=$shared/golden/model/$2
  [ -d "$from" ] || from=tools/verify/modelcase/testdata/$2
  shift 2
  mkdir -p "$work/$name-base"
  cp "$from/config.json" "$work/$name-base"
  cp "$from/weights.safetensors" "$work/$name-base/model.safetensors"
  bin/pretrain_gpt --finetune-data "$work/ids.jsonl" --load "$work/$name-base" --tokenizer-type NullTokenizer --vocab-size "$(sed -nE 's/.*"vocab_size": *([0-9]+).*/\1/p' "$from/config.json")" --save "$work/$name" --micro-batch-size 4 --seq-length 16 --train-iters 4 \
    --lr 1e-2 --min-lr 1e-2 --log-interval 1 --lora-rank 2 --lora-alpha 4 "$@" >"$work/$name.log" 2>&1 || { tail -3 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
  bin/monotron convert --input "$work/$name-base" --adapter "$work/$name/adapter" --to hf --output "$work/$name-merged" 2>/dev/null >/dev/null
  "$python" tests/proofs/tuning/parts.py --load "$work/$name/adapter" "$work/$name-base" "$work/$name-merged" 2>/dev/null >"$work/$name.json" ||
    { cat "$work/$name.json"; echo "FAILED: PEFT with $name"; exit 1; }
  echo "PEFT loads $name: $(cat "$work/$name.json")"
}
for i in $(seq 0 31); do echo "{\"input_ids\": [$(seq -s, "$i" "$((i + 12))")]}"; done >"$work/ids.jsonl"
parts tables llama --lora-target-modules embed_tokens,lm_head,v_proj
parts saved llama --lora-target-modules q_proj --lora-modules-to-save lm_head,model.norm,o_proj
parts bias gpt2-tanh --lora-target-modules c_attn,c_fc --lora-train-bias all
parts experts qwen3-moe
parts scans granite4-h --lora-target-modules in_proj,out_proj,input_linear
parts hybrid nemotron-h --lora-target-modules in_proj,up_proj,o_proj --use-dora
parts mamba2 mamba2 --lora-target-modules in_proj
parts down olmoe --lora-target-modules none --lora-target-parameters mlp.experts.down_proj

for case in llama-f32-double llama-bf16-double gpt2-f16-double; do
  for kind in nf4 int8; do
    flags=(--quantize "$kind")
    [ $kind = int8 ] || flags+=(--double-quant)
    bin/monotron convert --input "$shared/golden/qlora/$case/base" --to hf "${flags[@]}" --output "$work/$case-$kind" >/dev/null 2>&1
  done
done
"$python" tests/proofs/tuning/quantised.py "$shared/golden/qlora" "$work" llama-f32-double llama-bf16-double gpt2-f16-double 2>/dev/null || { echo FAILED; exit 1; }
"$python" tests/proofs/tuning/grpo.py --check megatron/policy/testdata/trl.json 2>"$work/grpo.err" || { tail -2 "$work/grpo.err"; echo "FAILED: TRL"; exit 1; }
if "$python" -c 'import xllamacpp' 2>/dev/null; then
  bin/monotron convert --input "$base" --to gguf --type f32 --output "$work/base.gguf" >/dev/null 2>&1
  bin/monotron convert --input "$work/patterns-merged" --tokenizer "$base" --to gguf --type f32 --output "$work/merged.gguf" >/dev/null 2>&1
  bin/monotron convert --input "$base" --adapter "$work/patterns/adapter" --adapter-only --to gguf --output "$work/adapter.gguf" >/dev/null 2>&1
  "$python" tests/proofs/tuning/gguf_adapter.py "$work" 2>/dev/null || { echo FAILED; exit 1; }
else
  echo "skipped: $python has no xllamacpp"
fi
