# Two runs with different learning rates, one of them stopped and resumed, compared on one page.
for i in $(seq 1 60); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 60)))\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
train() {
  folder=$1
  shift
  mkdir -p "$folder"
  pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
    --micro-batch-size 4 --global-batch-size 4 --train-iters 12 --lr-decay-style cosine --tokenizer-type GPT2BPETokenizer \
    --data-path sample_text_document --split 80,10,10 --eval-iters 1 --eval-interval 4 --save "$folder/ckpt" --load "$folder/ckpt" \
    --save-interval 4 --log-jsonl "$folder/steps.jsonl" "$@"
}
train fast --lr 1e-2 --exit-interval 6
train fast --lr 1e-2
train slow --lr 1e-3
monotron report fast --compare slow --output report.html
monotron report fast --compare slow --format markdown --output report.md
monotron report fast --compare slow --format png --output report.png
monotron report fast --format csv --output fast.csv
grep -q -- '--lr | 0.01 | 0.001' report.md
test "$(grep -c ,training, fast.csv)" = 12 && test -s report.html
