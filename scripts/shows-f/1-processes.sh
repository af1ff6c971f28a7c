# TP2 x PP2 x DP2 as 8 processes gives the losses of 8 ranks in one process, bit
# for bit: started by launch, and by hand with the variables of other launchers.
. "$(dirname "$0")/../shows-b/common.sh"
text
layout="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"
same() { cmp <(losses "$work/$1.jsonl") <(losses "$work/one.jsonl") && echo "$1: the same losses, bit for bit" || { echo "FAILED: $1"; exit 1; }; }
train one --world-size 8 $layout --micro-batch-size 1 --train-iters 10

line() { # NAME: the flags of train, for several processes
  echo "--num-layers 6 --hidden-size 96 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 \
    --global-batch-size 24 --train-iters 10 --lr 1e-3 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --attention-dropout 0.1 \
    --hidden-dropout 0.1 --tokenizer-type GPT2BPETokenizer --train-data-path $work/text_train_document --valid-data-path $work/text_val_document \
    --eval-interval 20 --eval-iters 2 --log-interval 1 $layout --log-jsonl $work/$1.jsonl"
}
bin/monotron launch --nproc-per-node 8 -- pretrain_gpt $(line launch) >"$work/launch.log" 2>&1 || { tail -3 "$work/launch.log"; exit 1; }
same launch

by_hand() { # NAME, then a command that prints the variables of rank $r
  name=$1
  ranks=()
  for r in 0 1 2 3 4 5 6 7; do
    env $(eval "$2") bin/pretrain_gpt $(line "$name") >"$work/$name.$r.log" 2>&1 &
    ranks+=($!)
  done
  for pid in "${ranks[@]}"; do wait "$pid" || { tail -n 2 "$work/$name".*.log; echo "FAILED: $name"; exit 1; }; done
  same "$name"
}
by_hand srun 'echo SLURM_PROCID=$r SLURM_NTASKS=8 SLURM_LOCALID=$r SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=8 SLURM_JOB_ID=4711'
by_hand mpirun 'echo OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=$r OMPI_COMM_WORLD_LOCAL_SIZE=8 PMIX_NAMESPACE=show-$$'
