# --attention-backend on the emulated kernels: what each value chooses and says, what ranks
# that differ do, and what a resumed run says. cuDNN is
# the tests' stand-in, which runs the graphs that it is given; then what a real cuDNN says
# of those graphs.
. "$(dirname "$0")/../common.sh"
make --no-print-directory emu
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
g++ -std=c++17 -shared -fPIC -O2 -fvisibility=hidden -o "$work/libcudnn.so.9" csrc/cuda/fake/library/cudnn.cpp
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
echo "== two ranks, cuDNN's numbers wrong on rank 1 alone: both take ours, or none goes on"
printf '#!/bin/sh\n[ "$RANK" = 1 ] && export STANDIN_FAULT=wrong\nexec bin/pretrain_gpt "$@"\n' > "$work/rank" && chmod +x "$work/rank"
for b in auto fused; do
  MONOTRON_EMU_GPUS=2 MONOTRON_CUDNN="$work/libcudnn.so.9" bin/monotron launch --nproc-per-node 2 -- "$work/rank" $tiny --global-batch-size 4 --device cuda \
    --distributed-backend gloo --attention-backend $b > "$work/out" 2> "$work/notes" || echo "ends with $?"
  grep -hE 'attention' "$work/notes" | sort -u
  sed -nE 's/.*lm loss: ([0-9.E+-]+).*/\1/p' "$work/out" | tr '\n' ' '
  echo
done
echo "== trained with cuDNN's, resumed without"
MONOTRON_CUDNN="$work/libcudnn.so.9" run --device cuda --save "$work/kept" --save-interval 2
run --device cuda --load "$work/kept" --train-iters 3 --override-opt_param-scheduler
for d in cpu ref; do run --device $d --attention-backend fused; done
sh scripts/cudnn-plans.sh
