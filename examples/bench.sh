# How fast the training step of a small model is here, as a fraction of this
# machine's own peak.
monotron bench --model gpt2-124m --micro-batch-size 1 --seq-length 32 --steps 1
