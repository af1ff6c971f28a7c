# --attention-backend on the emulated kernels: what each value chooses and says. cuDNN is
# the tests' stand-in, which runs the graphs that it is given; then what a real cuDNN says
# of those graphs.
cd "$(dirname "$0")/../.." || exit 1
set -e
make --no-print-directory build emu
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++17 -shared -fPIC -O2 -fvisibility=hidden -o "$work/libcudnn.so.9" csrc/cuda/standin/library/cudnn.cpp
tiny="--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 2
  --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 127 --bf16 --attention-dropout 0 --hidden-dropout 0.1 --eval-iters 0
  --log-interval 1 --seed 1 --train-iters 2"
run() { # a line for the choice, one for the losses
  echo "== $*"
  bin/pretrain_gpt $tiny "$@" > "$work/out" 2> "$work/notes" || true
  grep -hE '^attention:|^monotron:' "$work/notes"
  sed -nE 's/.*lm loss: ([0-9.E+-]+).*/\1/p' "$work/out" | tr '\n' ' '
  echo
}
for b in auto flash fused unfused local; do run --device cuda --attention-backend $b; done
for b in auto flash fused unfused local; do MONOTRON_CUDNN="$work/libcudnn.so.9" run --device cuda --attention-backend $b; done
MONOTRON_CUDNN="$work/libcudnn.so.9" run --device cuda --attention-backend fused --attention-dropout 0.1
MONOTRON_CUDNN="$work/libcudnn.so.9" run --device cuda --attention-backend fused --group-query-attention --num-query-groups 2
MONOTRON_CUDNN="$work/libcudnn.so.9" run --device cuda --attention-backend fused --group-query-attention --num-query-groups 2 --cuda-graph-impl local
for d in cpu ref; do run --device $d --attention-backend fused; done
sh scripts/cudnn-plans.sh
