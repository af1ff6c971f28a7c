# The machine file of this machine, and by it the seconds of a small model's step under a layout of 2 ranks.
monotron measure --quick --output here.yaml
monotron plan run --machine ./here.yaml pretrain_gpt --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 \
  --micro-batch-size 2 --global-batch-size 8 --train-iters 100 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 65 --world-size 2
