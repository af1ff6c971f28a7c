# Train a tiny GPT, stop it at iteration 4, and go on: the same command again.
seq 1 400 | tr '\n' ' ' | sed 's/.*/{"text": "&"}/' >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
train() {
  pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
    --micro-batch-size 2 --global-batch-size 4 --train-iters 8 --lr 1e-3 --lr-decay-style cosine \
    --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 \
    --save ckpt --load ckpt --save-interval 4 --log-interval 1 "$@"
}
train --exit-interval 4
train
monotron inspect checkpoint --verify ckpt
