# A tiny GPT-2 of transformers becomes a checkpoint of Megatron-LM cut over two
# tensor-parallel ranks, is trained on as it is, and goes back, proven on the way.
# REPO is the repository's folder.
model=${REPO:-.}/megatron/checkpoint/hf/testdata/gpt2-tiny
monotron convert --input "$model" --to torch --output gpt2-megatron --tensor-model-parallel-size 2 --verify
monotron convert --input gpt2-megatron --to hf --output back --dtype bf16 --tokenizer "$model" --verify
monotron inspect checkpoint gpt2-megatron
