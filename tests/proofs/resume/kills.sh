# kill -9 at COUNT random moments of a run that saves every 5 steps, each
# followed by a resume: the final loss and weights must equal the undisturbed
# run's, every time. SEED repeats the moments.
. "$(dirname "$0")/../common.sh"
COUNT=${COUNT:-50} SEED=${SEED:-1} DEVICE=${DEVICE:-auto}
for i in $(seq 1 200); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 120)))\"}"; done >"$work/text.jsonl"
bin/preprocess_data --input "$work/text.jsonl" --output-prefix "$work/d" --tokenizer-type GPT2BPETokenizer --append-eod --workers 2

flags() { # folder: one flag or value a line
  printf '%s\n' --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 \
    --micro-batch-size 2 --global-batch-size 4 --train-iters 40 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --seed 7 \
    --tokenizer-type GPT2BPETokenizer --data-path "$work/d_text_document" --split 90,10,0 --eval-interval 20 --eval-iters 2 \
    --save "$1" --load "$1" --save-interval 5 --log-interval 1 --log-jsonl "$1.jsonl" --device "$DEVICE"
}
kills "$COUNT" "$SEED"
