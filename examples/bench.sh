# From process start to the first finished training step of a small model. Without
# `start`: this machine's GEMM peak, then GPT-2 124M's step as a fraction of it.
monotron bench start
