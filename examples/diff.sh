# What differs between a model and its conversion: nothing. Between it and its
# bf16 copy: every weight, by at most one part in 256.
# REPO is the repository's folder.
model=${REPO:-.}/megatron/checkpoint/hf/testdata/gpt2-tiny
monotron convert --input "$model" --to nanogpt --output nanogpt
monotron diff "$model" nanogpt
monotron convert --input "$model" --to native --output half --dtype bf16
monotron diff "$model" half --rtol 0.00391
monotron diff "$model" half --json >changes.json || [ $? -eq 1 ]
