# Train a tiny GPT to count, and let it go on counting.
for i in $(seq 1 60); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 60)))\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
  --micro-batch-size 4 --global-batch-size 4 --train-iters 10 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt --save-interval 10
monotron generate --load ckpt --prompt '1 2 3 4' --max-new-tokens 8 --tokenizer-type GPT2BPETokenizer
