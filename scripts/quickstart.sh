#!/bin/bash
# Called by make quickstart: trains a small GPT on the sources of Go, kills the run and resumes it,
# and compares what is trained twice bit for bit. SEED (1234): initial weights and order of the data;
# TRAIN_SECONDS (90): length of the training; CORPUS (all): bytes of text; EVAL_ITERS (10): batches of an
# evaluation. Everything is written to OUT (quickstart); the programs are those of BIN (bin).
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-bin} seed=${SEED:-1234} seconds=${TRAIN_SECONDS:-90} corpus=${CORPUS:-1000000000} out=${OUT:-quickstart}
name=quickstart
. scripts/quickstart-begin.sh
mkdir "$out/killed" "$out/trial"
tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$out/tokenizer")

title "This machine"
run "$bin/monotron" doctor

title "Corpus: the sources of the Go toolchain"
src=$(go env GOROOT)/src
[ -d "$src" ] || die "$src is missing; this Go toolchain came without its sources"
# Tables and generated files teach nothing. The order is random, and the same on every machine.
find "$src" -name testdata -prune -o -type f -name '*.go' -size -128k -print0 | sort -z |
  xargs -0 grep -LE '^// Code generated .* DO NOT EDIT\.$' | LC_ALL=C sort -R --random-source=<(yes) |
  xargs stat -c '%s %n' | awk -v most="$corpus" '(sum += $1) <= most { print $2 }' >"$out/files"
mapfile -t files <"$out/files"
bytes=$(cat "${files[@]}" | wc -c)
echo "${#files[@]} files, $((bytes / 1000000)) MB of text"

title "Tokenizer: a BPE of 4,096 tokens from every fourth file"
sample=() all=()
for ((i = 0; i < ${#files[@]}; i++)); do
  all+=(--input "${files[i]}")
  ((i % 4)) || sample+=(--input "${files[i]}")
done
"$bin/monotron" train_tokenizer --input-format text "${sample[@]}" --output-dir "$out/tokenizer" --vocab-size 4096 --pattern llama3

title "Tokens"
"$bin/preprocess_data" --input-format text "${all[@]}" --output-prefix "$out/go" --append-eod "${tokenizer[@]}" 2>&1 | tail -n 3
tokens=$(($(stat -c %s "$out/go_text_document.bin") / 2)) # 4,096 ids fit two bytes
echo "a token stands for $(awk "BEGIN { printf \"%.2f\", $bytes / $tokens }") bytes"

title "Training"
model=(--seed "$seed" --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear --bf16
  --micro-batch-size 4 --global-batch-size 4 --attention-dropout 0 --hidden-dropout 0
  --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-fraction 0.05 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0
  --data-path "$out/go_text_document" --split "95,5,0" --log-interval 1 --eval-iters "${EVAL_ITERS:-10}" "${tokenizer[@]}")
field() { sed -nE "s/.*\"$1\":([-0-9.e+]+).*/\1/p"; } # of JSON lines
"$bin/pretrain_gpt" "${model[@]}" --train-iters 12 --eval-interval 1000 --log-jsonl "$out/trial/steps.jsonl" >"$out/trial/train.log" 2>&1 || die "the trial failed: $(tail -n 5 "$out/trial/train.log")"
median=$(grep '"grad_norm"' "$out/trial/steps.jsonl" | field seconds | sort -g | sed -n 6p)
every=$(awk "BEGIN { n = int($seconds / $median / 10); print (n > 4 ? n : 4) }") # ten checkpoints and evaluations
steps=$((10 * every)) kept=$((5 * every)) lost=$((6 * every)) dies=$((6 * every + every / 3 + 1))
echo "$median s a step: $steps steps take about $seconds s; the run is killed after step $dies"
command=("$bin/pretrain_gpt" "${model[@]}" --train-iters "$steps" --save "$out/checkpoint" --load "$out/checkpoint"
  --save-interval "$every" --eval-interval "$every" --log-jsonl "$out/steps.jsonl" --dashboard-addr 127.0.0.1:0)

shown=0 last=0
progress() { # prints the evaluations that the step file has gained
  local lines
  lines=$(grep -s '"validation":"validation"' "$out/steps.jsonl" | tail -n "+$((shown + 1))" || true)
  [ -n "$lines" ] || return 0
  shown=$((shown + $(wc -l <<<"$lines")))
  while read -r line; do
    step=$(field iteration <<<"$line")
    ((step > last)) || continue # the end is evaluated twice, and so is what is trained twice
    last=$step
    loss=$(sed -nE 's/.*"lm loss":([0-9.e+-]+).*/\1/p' <<<"$line")
    printf '  step %4d of %d   validation loss %.3f (%.3f bits a byte)   %3d s\n' "$step" "$steps" "$loss" \
      "$(awk "BEGIN { print $loss / log(2) * $tokens / $bytes }")" $((SECONDS - began))
  done <<<"$lines"
}
follow() { # pid: until it ends, or the step file has reached a step
  while kill -0 "$1" 2>/dev/null; do
    progress
    [ -n "${2:-}" ] && grep -q "\"iteration\":$2,.*\"grad_norm\"" "$out/steps.jsonl" 2>/dev/null && return
    sleep 0.2
  done
  progress
}

echo "\$ $(printf '%q ' "${command[@]}")"
"${command[@]}" >"$out/train.log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
until grep -qs "http://" "$out/train.log" || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
echo "the run as a page: $(grep -om1 'http://[^ ,;]*' "$out/train.log" || true)"
follow $pid "$dies"
kill -9 $pid 2>/dev/null || die "the run ended by itself: $(tail -n 5 "$out/train.log")"
wait $pid 2>/dev/null || true
echo "kill -9 $pid"

title "Resume, and train the lost steps again"
lostname=iter_$(printf %07d "$lost") last=$kept
mv "$out/checkpoint/$lostname" "$out/killed/"
cp "$out/steps.jsonl" "$out/killed/"
"${command[@]}" --ckpt-step "$kept" >>"$out/train.log" 2>&1 &
pid=$!
follow $pid
wait $pid || die "the resumed run failed: $(tail -n 5 "$out/train.log")"

# Loss and gradient norm of every step that both runs made, and the bytes of the checkpoint that both wrote.
numbers() { grep '"grad_norm"' "$1" | sed -nE 's/.*"iteration":([0-9]+),.*"lm loss":([^,}]+).*"grad_norm":([^,}]+).*/\1 \2 \3/p'; }
twice=$(numbers "$out/steps.jsonl" | tail -n "+$(($(numbers "$out/killed/steps.jsonl" | wc -l) + 1))" | awk -v n="$dies" '$1 <= n')
first=$(numbers "$out/killed/steps.jsonl" | awk -v k="$kept" -v n="$dies" '$1 > k && $1 <= n')
[ -n "$first" ] && [ "$first" = "$twice" ] || die "the resumed run differs: see $out/steps.jsonl and $out/killed/steps.jsonl"
for file in "$out/killed/$lostname"/*.safetensors; do
  cmp "$file" "$out/checkpoint/$lostname/${file##*/}" || die "the resumed run's checkpoint differs"
done
echo "bit for bit: $(wc -l <<<"$first") steps trained twice have the same losses and gradient norms, and both checkpoints $lost the same bytes"

title "Text from the model"
run "$bin/monotron" generate --load "$out/checkpoint" --prompt $'// Close closes the file.\nfunc (f *File) Close(' --max-new-tokens 160 --temperature 0.7 --top-k 40 --seed 1 "${tokenizer[@]}"

title "Report"
run "$bin/monotron" report "$out" --output "$out/report.html"
printf '\nDone in %d s. Open %s/report.html in a browser: the run with its kill. To continue, run the command above with more --train-iters.\n' $((SECONDS - began)) "$out"
