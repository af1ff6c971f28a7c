# Sourced by every proof: where things are, what is needed, how runs are compared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shared=${MONOTRON_SHARED:-$(realpath -m ../shared)}
export MONOTRON_SHARED=$shared
export GO=${GO:-go}
python=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT

need() { # file: ends the proof where it is not there
  [ -e "$1" ] || { echo "skipped: $1 is not here (set MONOTRON_SHARED)"; exit 0; }
}

peer() { # modules: ends the proof where Python lacks one of them
  for module in "$@"; do
    "$python" -c "import $module" 2>/dev/null || { echo "skipped: $python has no $module (set PYTHON to a virtual environment's)"; exit 0; }
  done
}

# losses of a --log-jsonl file: "iteration loss grad_norm", as printed
losses() {
  grep -v '"validation"' "$1" | sed -E 's/.*"iteration":([0-9]+),.*"lm loss":([^,}]+).*/\1 \2/' | sort -n -u -k1,1
}

# weights: the hash of all weights of a save folder's latest checkpoint
weights() { bin/monotron inspect checkpoint --verify --json "$1" | sed -nE 's/.*"weights_hash": *"([^"]+)".*/\1/p'; }

# text: Shakespeare as a dataset of GPT-2's tokens under $work/text
text() {
  need "$shared/data/tinyshakespeare.txt"
  bin/preprocess_data --input "$shared/data/tinyshakespeare.txt" --input-format text --text-split 0.9 --output-prefix "$work/text" \
    --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 >/dev/null
}

# line NAME: 20 steps of a small GPT on that text; JSON lines in $work/NAME.jsonl
line() {
  echo "--num-layers 6 --hidden-size 96 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64
    --micro-batch-size 2 --global-batch-size 24 --train-iters 20 --lr 1e-3 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1
    --attention-dropout 0.1 --hidden-dropout 0.1 --tokenizer-type GPT2BPETokenizer --train-data-path $work/text_train_document
    --valid-data-path $work/text_val_document --eval-interval 20 --eval-iters 2 --log-interval 1 --log-jsonl $work/$1.jsonl"
}

# train NAME [FLAGS..]: that line in one process, then these flags
train() {
  local name=$1
  shift
  bin/pretrain_gpt $(line "$name") --save-interval 5 "$@" >"$work/$name.log" 2>&1 || { tail -5 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
}

# apart A B: the largest relative difference of two runs' losses, and how many were compared
apart() {
  join <(losses "$work/$1.jsonl" | sort -k1,1) <(losses "$work/$2.jsonl" | sort -k1,1) |
    awk '{ d = ($2 - $3) / $3; if (d < 0) d = -d; if (d > m) m = d; n++ } END { printf "%d %.2e\n", n, m }'
}

# same A B: their losses are the same, bit for bit
same() {
  cmp <(losses "$work/$1.jsonl") <(losses "$work/$2.jsonl") && echo "$1: the same losses as $2, bit for bit" || { echo "FAILED: $1"; exit 1; }
}

# consumed NAME: "iteration samples" of every step
consumed() {
  grep -v '"validation"' "$work/$1.jsonl" | sed -E 's/.*"iteration":([0-9]+),"consumed_samples":([0-9]+).*/\1 \2/' | sort -n -u
}

# kills COUNT SEED: flags, the proof's own function, prints a run's flags for a save folder, a word
# a line. The run once undisturbed, in $work/whole; then COUNT times kill -9 at a random moment
# of it and a resume: last loss and weights must be the undisturbed run's, every time.
kills() {
  local count=$1 seed=$2 whole broken start took want got moment pid killed=0 n
  RANDOM=$seed
  mapfile -t whole < <(flags "$work/whole")
  mapfile -t broken < <(flags "$work/k")
  start=$(date +%s%N)
  bin/pretrain_gpt "${whole[@]}" >"$work/whole.log" 2>&1 || { tail -3 "$work/whole.log"; exit 1; }
  took=$((($(date +%s%N) - start) / 1000000))
  want="$(losses "$work/whole.jsonl" | tail -1) $(weights "$work/whole")"
  echo "undisturbed: $want in $took ms"
  for n in $(seq 1 "$count"); do
    rm -rf "$work"/k "$work"/k.*
    moment=$((RANDOM * took / 32768))
    bin/pretrain_gpt "${broken[@]}" >"$work/k.log" 2>&1 &
    pid=$!
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    if kill -9 "$pid" 2>/dev/null; then killed=$((killed + 1)); fi
    wait "$pid" 2>/dev/null || true
    bin/pretrain_gpt "${broken[@]}" >>"$work/k.log" 2>&1 || { tail -5 "$work/k.log"; echo "FAILED: resume $n (killed at $moment ms, seed $seed)"; exit 1; }
    got="$(losses "$work/k.jsonl" | tail -1) $(weights "$work/k")"
    [ "$got" = "$want" ] || { echo "FAILED: resume $n (killed at $moment ms, seed $seed): $got"; exit 1; }
    [ $((n % 10)) -ne 0 ] || echo "$n resumes equal so far"
  done
  echo "kills: $killed of $count runs killed while running, $count resumes, all equal to the undisturbed run, bit for bit (seed $seed)"
}
