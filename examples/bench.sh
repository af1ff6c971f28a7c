# How fast the training step of a small model is here, as a fraction of this
# machine's own peak.
monotron bench --model shakespeare-char --micro-batch-size 12 --seq-length 64 --steps 3
