# The whole trainer on emulated CUDA kernels, whose memory the host cannot touch and whose
# work is done behind its back, against the CPU: ranks in every kind of layout train, each to the
# CPU's losses; with --layout-invariant to the same weights; a checkpoint goes from one layout to
# another; the last model generates. Called by make test-emu (QUICK=1: two layouts).
set -eu
cd "$(dirname "$0")/.."
export MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model="--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 4
  --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 63 --hidden-dropout 0.1 --attention-dropout 0.1 --eval-iters 1 --eval-interval 2
  --log-interval 1 --seed 1 --train-iters 3"
losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([0-9.E+-]+).*/\1 \2/p' "$1"; }
train() { # DEVICE NAME, then flags
  device=$1 name=$2
  shift 2
  bin/pretrain_gpt $model --device "$device" "$@" > "$work/$name.$device" 2>&1 || { tail -3 "$work/$name.$device"; echo "FAILED: $name on $device"; exit 1; }
}
# Sums of f32 in another order: some units of the seventh digit that the log prints; in
# fp16 a rounding of a value, 2^-11.
bound=3e-6
same() { # NAME DEVICE NAME DEVICE
  losses "$work/$1.$2" > "$work/a"
  losses "$work/$3.$4" > "$work/b"
  paste -d ' ' "$work/a" "$work/b" | awk -v what="$1 on $2" -v bound=$bound '
    { d = $2 / $4 - 1; if (d < 0) d = -d; if (d > worst) worst = d; if ($1 != $3 || NF != 4) bad = 1; n++ }
    END { printf "%s: %d losses, at most %.1e from the CPU\n", what, n, worst; exit bad || n < 1 || worst > bound }' || { echo "FAILED"; exit 1; }
}
both() {
  name=$1
  shift
  train cpu "$name" "$@"
  train cuda "$name" "$@"
  same "$name" cuda "$name" cpu
}
both tp2-sp --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel
both pp2-zero --world-size 4 --pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
if MONOTRON_EMU_GPUS=1 bin/monotron launch --nproc-per-node 2 -- pretrain_gpt $model > "$work/seats" 2>&1 || ! grep -q 'rank 1 has none (.*GPU 1 was requested, but the number of visible GPUs is 1' "$work/seats"; then
  tail -3 "$work/seats"
  echo "FAILED: two ranks, one GPU, --device auto"
  exit 1
fi
echo "two ranks on a host with one GPU: refused by --device auto"
[ -n "${QUICK:-}" ] && exit 0
MONOTRON_EMU_GPUS=2 bin/monotron launch --nproc-per-node 2 -- pretrain_gpt $model --device cuda --distributed-backend gloo --tensor-model-parallel-size 2 --sequence-parallel > "$work/processes.cuda" 2>&1 ||
  { tail -3 "$work/processes.cuda"; echo "FAILED: processes"; exit 1; }
same processes cuda tp2-sp cpu
both one
bound=5e-4
both fp16 --fp16 --initial-loss-scale 1024
bound=3e-6
both tp4 --world-size 4 --tensor-model-parallel-size 4
both tp2-pp2-dp2 --world-size 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer
both vp2 --world-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1
both zero3 --world-size 2 --data-parallel-sharding-strategy optim_grads_params
both recompute --world-size 2 --tensor-model-parallel-size 2 --recompute-granularity full --recompute-method block --recompute-num-layers 2 --distribute-saved-activations
both llama --world-size 2 --tensor-model-parallel-size 2 --swiglu --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear --group-query-attention --num-query-groups 2
hash() { sed -nE 's/.*"weights_hash":"([0-9a-f]+)".*/\1/p' "$work/$1.jsonl" | tr '\n' ' '; }
invariant() { # NAME, then flags
  name=$1
  shift
  train cuda "$name" --layout-invariant --reduction-leaves 4 --log-weights-hash 1 --log-jsonl "$work/$name.jsonl" "$@"
  [ "$name" = leaves ] && wanted=$(hash leaves)
  [ -n "$wanted" ] && [ "$(hash "$name")" = "$wanted" ] || { echo "FAILED: $name has other weights than one rank"; exit 1; }
}
invariant leaves
invariant leaves-tp2-sp --world-size 4 --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer
invariant leaves-pp2 --world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2
echo "--layout-invariant: the same weights at each step on one rank, tp 2 x dp 2 and pp 2 with micro-batches of 2"
train cuda half --world-size 2 --tensor-model-parallel-size 2 --save "$work/ck" --save-interval 2 --exit-interval 2
train cuda rest --world-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer --async-save --save "$work/ck" --save-interval 3 --load "$work/ck"
cat "$work/half.cuda" "$work/rest.cuda" > "$work/resumed.cuda"
same resumed cuda one cpu
for ranks in "" "--tensor-model-parallel-size 2" "--pipeline-model-parallel-size 2"; do
  bin/monotron generate --load "$work/ck" --prompt "1 2 3" --max-new-tokens 6 --device cuda $ranks > "$work/text" 2> /dev/null
  bin/monotron generate --load "$work/ck" --prompt "1 2 3" --max-new-tokens 6 --device cpu > "$work/wanted" 2> /dev/null
  diff "$work/text" "$work/wanted" || { echo "FAILED: generate $ranks"; exit 1; }
done
echo "generate on one rank, tp 2 and pp 2: the CPU's tokens"
