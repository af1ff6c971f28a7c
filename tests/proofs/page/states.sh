#!/bin/bash
# Claim: in every state of a run (starting, running, stalled, finished, failed, without a step, with experts, stages and ranks, and
# several compared) the page says so, fits its window on a desk and on a phone, light and dark, cuts nothing off, and passes axe's rules
# of WCAG 2.2 AA. SHOTS names a folder that keeps the pictures; AXE names axe.min.js of npm's axe-core (without it those rules are
# skipped).
source "$(dirname "$0")/../common.sh"
command -v chromium >/dev/null || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
root=$PWD
"$python" -c 'import json, sys; [print(json.dumps({"text": open(p).read()})) for p in sys.argv[1:]]' README.md docs/*.md >"$work/pages.jsonl"
bin/monotron train_tokenizer --input "$work/pages.jsonl" --output-dir "$work/tokenizer" --vocab-size 1024 >/dev/null
words="--tokenizer-type GPT2BPETokenizer --vocab-file $work/tokenizer/vocab.json --merge-file $work/tokenizer/merges.txt"
bin/preprocess_data --input "$work/pages.jsonl" $words --append-eod --output-prefix "$work/pages" >/dev/null
[ -z "${SHOTS:-}" ] || mkdir -p "$SHOTS"
export SHOTS=${SHOTS:-$work}
cd "$work" || exit

# small FOLDER FLAGS..: trains a small model, its log in FOLDER
small() {
  local folder=$1
  shift
  mkdir -p "$folder"
  "$root/bin/pretrain_gpt" --num-layers 4 --hidden-size 48 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 8 \
    --lr 3e-3 --lr-decay-style cosine --lr-warmup-iters 10 --clip-grad 1.0 $words --data-path pages_text_document --split 8,2,0 --eval-interval 20 --eval-iters 2 \
    --log-interval 5 --log-extras --sample-prompt "The" --sample-prompt "A run" --sample-tokens 24 --log-jsonl "$folder/steps.jsonl" "$@" >>"$folder/notes.log" 2>&1
}
small finished --train-iters 120 --save finished/ck --save-interval 40 --run-name "Pages, 4 layers" --price-per-hour 2.5
echo "The learning rate of the small model, twice as long." >finished/notes.md
small failed --train-iters 400 --world-size 2 --save failed/ck --save-interval 20 --inject exit:rank=0:step=50 && { echo "FAILED: a run with a dead rank ended well"; exit 1; }
small mixture --train-iters 60 --world-size 4 --pipeline-model-parallel-size 2 --expert-model-parallel-size 2 --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 \
  --profile mixture/trace.json --profile-step-start 5 --profile-step-end 7 --inject sleep:rank=3:seconds=0.05 --fp16
for lr in 1e-4 1e-3 1e-2; do small "lr-$lr" --train-iters 100 --lr "$lr" --min-lr 1e-5 --seed 7; done
mkdir -p empty && : >empty/steps.jsonl
"$python" -c 'import json, sys; run = json.load(sys.stdin); del run["ended"]; json.dump(run, sys.stdout)' <finished/steps.run.json >empty/steps.run.json
for name in finished failed mixture empty; do "$root/bin/monotron" report "$name" --output "$name.html"; done
"$root/bin/monotron" report lr-1e-3 --compare lr-1e-4 lr-1e-2 --output compared.html

mkdir -p live
"$root/bin/pretrain_gpt" --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --train-iters 5000 --lr 1e-3 \
  $words --data-path pages_text_document --split 8,2,0 --eval-interval 1000 --eval-iters 1 --log-interval 1 --log-extras --log-jsonl live/steps.jsonl \
  --inject sleep:step=1:seconds=15 --inject sleep:step=300:seconds=3600 --stall-seconds 86400 --dashboard-addr 127.0.0.1:0 >live/out 2>live/notes &
run=$!
trap 'kill -9 $run 2>/dev/null' EXIT
until grep -q 'page is at' live/notes; do kill -0 $run || { cat live/notes; exit 1; }; sleep 0.1; done
"$python" "$root/tests/proofs/page/states.py" "$work" "$(sed -n 's|.*\(http://[^ ]*/\).*|\1|p' live/notes | head -1)"
