# GPT-2 124M, micro-batch 4, sequence 512: one training step against the GEMM
# peak measured in the same run, in f32 and bf16.
. "$(dirname "$0")/../common.sh"
make --no-print-directory bench
