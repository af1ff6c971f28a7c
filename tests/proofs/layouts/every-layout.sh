# Every legal layout of up to 8 ranks, GPT-2, Llama and BLOOM shapes, against one rank.
. "$(dirname "$0")/../common.sh"
for precision in "" --bf16 --fp16; do
  bin/monotron verify --world-size 8 $precision
done
