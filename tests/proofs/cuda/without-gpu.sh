# What holds on a machine without a GPU: the library compiles for every architecture, no
# kernel spills anew, every kernel's cases and layouts of ranks pass emulated, and the program says in one line
# what is missing while it names no CUDA library itself.
. "$(dirname "$0")/../common.sh"
make --no-print-directory cuda-kernels
make --no-print-directory test-emu
if ldd bin/monotron | grep -iE 'cuda|cublas|nvidia|nccl'; then echo "FAILED: bin/monotron needs a CUDA library"; exit 1; fi
echo "bin/monotron names no CUDA library"
[ -e /dev/nvidia0 ] && exit 0
tiny="--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --train-iters 2
  --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 63"
said=$(bin/pretrain_gpt $tiny --device cuda 2>&1) && { echo "FAILED: trained on a GPU that is not here"; exit 1; }
echo "$said"
[ "$(echo "$said" | grep -c 'CUDA cannot be used')" = 1 ] || { echo "FAILED: the line that says what is missing"; exit 1; }
bin/monotron doctor | grep 'cuda '
