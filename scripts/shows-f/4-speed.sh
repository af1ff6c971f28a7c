# An all-reduce between two processes by every way, beside Gloo's own sums and, where
# PYTHON has torch, torch.distributed's; then the start of 8 processes to their first
# step's line.
cd "$(dirname "$0")/../.." || exit 1
make --no-print-directory build gloo
if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then export PYTHON=${PYTHON:-python3}; else unset PYTHON; fi
bin/monotron bench comm || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
start=$(date +%s.%N)
bin/monotron launch --nproc-per-node 8 -- pretrain_gpt --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \
  --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --train-iters 1 --lr 1e-2 --log-interval 1 --mock-data \
  --tokenizer-type NullTokenizer --vocab-size 50 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --eval-iters 0 --eval-interval 1000 \
  >"$work/log" 2>&1 || { tail -3 "$work/log"; exit 1; }
grep preflight "$work/log"
echo "8 processes, from the command to the end of a run of one step: $(echo "$(date +%s.%N) - $start" | bc) s"
