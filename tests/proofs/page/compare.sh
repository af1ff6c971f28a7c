#!/bin/bash
# Claim: the report of three runs that differ in their learning rate says so first, has each run's curves, and opens from disk. SHOTS
# names a folder that keeps its pictures.
source "$(dirname "$0")/../common.sh"
command -v chromium >/dev/null || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
"$python" -c 'import json, sys; [print(json.dumps({"text": open(p).read()})) for p in sys.argv[1:]]' README.md docs/*.md >"$work/pages.jsonl"
bin/preprocess_data --input "$work/pages.jsonl" --tokenizer-type GPT2BPETokenizer --append-eod --output-prefix "$work/pages" >/dev/null
for lr in 1e-4 1e-3 1e-2; do
  mkdir -p "$work/lr-$lr"
  bin/pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 \
    --global-batch-size 8 --train-iters 200 --lr "$lr" --lr-decay-style cosine --lr-warmup-iters 10 --clip-grad 1.0 --tokenizer-type GPT2BPETokenizer \
    --data-path "$work/pages_text_document" --split 8,2,0 --eval-interval 25 --eval-iters 4 --log-interval 10 --log-extras --sample-prompt "The" --sample-tokens 24 \
    --save "$work/lr-$lr/ck" --save-interval 100 --log-jsonl "$work/lr-$lr/steps.jsonl" >"$work/lr-$lr/notes" 2>&1 || { tail -5 "$work/lr-$lr/notes"; exit 1; }
done
(cd "$work" && "$OLDPWD/bin/monotron" report lr-1e-3 --compare lr-1e-4 lr-1e-2 --output report.html &&
  "$OLDPWD/bin/monotron" report lr-1e-3 --compare lr-1e-4 lr-1e-2 --format png --output report.png &&
  "$OLDPWD/bin/monotron" report lr-1e-3 --compare lr-1e-4 lr-1e-2 --format markdown --output report.md)
[ -z "${SHOTS:-}" ] || mkdir -p "$SHOTS"
SHOTS=${SHOTS:-$work} "$python" tests/proofs/page/compare.py "$work/report.html"
