# Sourced by the proofs beside it: real text, and one training line for all layouts.
. "$(dirname "${BASH_SOURCE[0]}")/../shows-a/common.sh"

# text: Shakespeare as a dataset of GPT-2's tokens under $work/text
text() {
  need "$shared/data/tinyshakespeare.txt"
  bin/preprocess_data --input "$shared/data/tinyshakespeare.txt" --input-format text --text-split 0.9 --output-prefix "$work/text" \
    --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 >/dev/null
}

# train NAME [FLAGS..]: 20 steps of a small GPT; JSON lines in $work/NAME.jsonl
train() {
  local name=$1
  shift
  bin/pretrain_gpt --num-layers 6 --hidden-size 96 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 \
    --micro-batch-size 2 --global-batch-size 24 --train-iters 20 --lr 1e-3 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 \
    --attention-dropout 0.1 --hidden-dropout 0.1 --tokenizer-type GPT2BPETokenizer --train-data-path "$work/text_train_document" --valid-data-path "$work/text_val_document" \
    --eval-interval 20 --eval-iters 2 --log-interval 1 --save-interval 5 --log-jsonl "$work/$name.jsonl" "$@" >"$work/$name.log" 2>&1 ||
    { tail -5 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
}

# apart A B: the largest relative difference of two runs' losses, and how many were compared
apart() {
  join <(losses "$work/$1.jsonl" | sort -k1,1) <(losses "$work/$2.jsonl" | sort -k1,1) |
    awk '{ d = ($2 - $3) / $3; if (d < 0) d = -d; if (d > m) m = d; n++ } END { printf "%d %.2e\n", n, m }'
}

# consumed NAME: "iteration samples" of every step
consumed() {
  grep -v '"validation"' "$work/$1.jsonl" | sed -E 's/.*"iteration":([0-9]+),"consumed_samples":([0-9]+).*/\1 \2/' | sort -n -u
}
