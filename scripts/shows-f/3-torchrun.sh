# TP2 x PP2 x DP2 under torchrun gives the losses of 8 ranks in one process, bit for
# bit. PYTHON: one with torch.
. "$(dirname "$0")/../shows-b/common.sh"
if ! "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then echo "skipped: PYTHON has no torch"; exit 0; fi
text
layout="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"
train one --world-size 8 $layout --micro-batch-size 1
"${PYTHON:-python3}" -m torch.distributed.run --no-python --nproc-per-node 8 --master-port 29533 bin/pretrain_gpt \
  --num-layers 6 --hidden-size 96 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 \
  --global-batch-size 24 --train-iters 20 --lr 1e-3 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --attention-dropout 0.1 \
  --hidden-dropout 0.1 --tokenizer-type GPT2BPETokenizer --train-data-path $work/text_train_document --valid-data-path $work/text_val_document \
  --eval-interval 20 --eval-iters 2 --log-interval 1 $layout --log-jsonl "$work/torchrun.jsonl" >"$work/torchrun.log" 2>&1 || { tail -5 "$work/torchrun.log"; exit 1; }
cmp <(losses "$work/torchrun.jsonl") <(losses "$work/one.jsonl") && echo "torchrun: the same losses, bit for bit" || { echo "FAILED: torchrun"; exit 1; }
