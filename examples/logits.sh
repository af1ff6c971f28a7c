# What a model expects after each token of a prompt: the likeliest five.
echo '{"text": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"}' >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 8 --max-position-embeddings 8 \
  --micro-batch-size 1 --global-batch-size 1 --train-iters 2 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt --save-interval 2
monotron logits --load ckpt --prompt 'one two three' --tokenizer-type GPT2BPETokenizer
