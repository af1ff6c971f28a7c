#!/bin/bash
# Claim: a browser that looks at a run while it trains has every panel drawn, every number as the log has it, each step within 2
# seconds; it finds the run again after kill -9 and a restart, and takes a prompt that is markup for text. SHOTS names a folder
# that keeps the pictures it takes.
source "$(dirname "$0")/../common.sh"
command -v chromium >/dev/null || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
"$python" -c 'import json, sys; [print(json.dumps({"text": open(p).read()})) for p in sys.argv[1:]]' README.md docs/*.md >"$work/pages.jsonl"
bin/preprocess_data --input "$work/pages.jsonl" --tokenizer-type GPT2BPETokenizer --append-eod --output-prefix "$work/pages" >/dev/null
mkdir -p "$work/run"
[ -z "${SHOTS:-}" ] || mkdir -p "$SHOTS"
export SHOTS=${SHOTS:-$work}
root=$PWD
cd "$work" || exit
"$python" "$root/tests/proofs/page/live.py" run "$root/bin/pretrain_gpt" --world-size 4 --pipeline-model-parallel-size 2 \
  --expert-model-parallel-size 2 --num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --num-layers 4 --hidden-size 48 --num-attention-heads 4 \
  --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 16 --train-iters 5000 --lr 3e-3 --lr-decay-style cosine \
  --lr-warmup-iters 20 --clip-grad 1.0 --fp16 --tokenizer-type GPT2BPETokenizer --data-path pages_text_document --split 8,2,0 \
  --eval-interval 20 --eval-iters 2 --log-interval 1 --log-extras --sample-prompt "<img src=x onerror=document.body.dataset.owned=1> The" --sample-tokens 24 \
  --profile "run/trace.json" --profile-step-start 5 --profile-step-end 7 --price-per-hour 2.5 --alert-command "cat >>run/alerts" \
  --save "run/ck" --load "run/ck" --save-interval 10 --log-jsonl "run/steps.jsonl"
