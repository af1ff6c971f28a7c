# Two ranks as processes of this host: tensor parallelism over two.
seq -s ' ' 0 900 | sed 's/.*/{"text":"&"}/' >numbers.jsonl
monotron preprocess_data --input numbers.jsonl --output-prefix numbers --tokenizer-type NullTokenizer --vocab-size 1000 --workers 1
monotron launch --nproc-per-node 2 -- pretrain_gpt --tensor-model-parallel-size 2 --num-layers 2 --hidden-size 32 --num-attention-heads 4 \
  --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --train-iters 5 --lr 1e-3 --log-interval 1 \
  --eval-iters 0 --split 100,0,0 --tokenizer-type NullTokenizer --vocab-size 1000 --data-path numbers_text_document
