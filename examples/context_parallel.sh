# Sequences cut over 4 ranks of this process, by a ring and by heads; the run then goes on with
# one rank; a prompt cut over 2 ranks. Before that, the work of each rank in each step of the ring.
monotron plan schedule --pipeline-model-parallel-size 1 --context-parallel-size 4 --seq-length 64
train() {
  pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 \
    --global-batch-size 2 --train-iters 6 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 100 --eval-iters 0 \
    --log-interval 1 --save ckpt --load ckpt --save-interval 2 "$@"
}
train --world-size 4 --context-parallel-size 4 --exit-interval 2
monotron logits --load ckpt --context-parallel-size 2 --prompt-ids '1 2 3 4 5 6 7 8 9 10' --last
train --world-size 4 --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 --exit-interval 4
train
