# What differs between a model and its conversion: nothing. Between it and its
# bf16 copy: every weight, by at most one part in 256.
# REPO is the repository's folder.
model=${REPO:-.}/megatron/checkpoint/hf/testdata/gpt2-tiny
monotron convert --input "$model" --to nanogpt --output nanogpt
monotron diff "$model" nanogpt
monotron convert --input "$model" --to native --output half --dtype bf16
monotron diff "$model" half --rtol 0.00391
monotron diff "$model" half --json >changes.json || [ $? -eq 1 ]
# Where two runs part: they differ in one flag, which first shows in the weights after step 1.
run="pretrain_gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16
  --micro-batch-size 2 --train-iters 3 --mock-data --tokenizer-type NullTokenizer --vocab-size 50"
$run --lr 1e-3 --log-fingerprints a
$run --lr 2e-3 --log-fingerprints b
monotron diff a b | tee parting || [ $? -eq 1 ]
grep 'first difference: iteration 1, rank 0, weight' parting
