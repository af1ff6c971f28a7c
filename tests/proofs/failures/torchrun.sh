# TP2 x PP2 x DP2 under torchrun gives the losses of 8 ranks in one process, bit for
# bit. PYTHON: one with torch.
. "$(dirname "$0")/../common.sh"
peer torch
text
layout="--micro-batch-size 1 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"
train one --world-size 8 $layout
"$python" -m torch.distributed.run --no-python --nproc-per-node 8 --master-port 29533 bin/pretrain_gpt $(line torchrun) $layout \
  >"$work/torchrun.log" 2>&1 || { tail -5 "$work/torchrun.log"; exit 1; }
same torchrun one
