# GPT-2 124M, micro-batch 4, sequence 512: one training step against the GEMM
# peak measured in the same run, in f32 and bf16.
. "$(dirname "$0")/common.sh"
for precision in f32 bf16; do
  flag=
  [ "$precision" = bf16 ] && flag=--bf16
  echo "== $precision"
  bin/monotron bench --model gpt2-124m --micro-batch-size 4 --seq-length 512 $flag --json
done
