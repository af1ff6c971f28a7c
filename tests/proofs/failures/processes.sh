# TP2 x PP2 x DP2 as 8 processes gives the losses of 8 ranks in one process, bit
# for bit: started by launch, and by hand with the variables of other launchers.
. "$(dirname "$0")/../common.sh"
text
layout="--micro-batch-size 1 --train-iters 10 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"
train one --world-size 8 $layout
bin/monotron launch --nproc-per-node 8 -- pretrain_gpt $(line launch) $layout >"$work/launch.log" 2>&1 || { tail -3 "$work/launch.log"; exit 1; }
same launch one

by_hand() { # NAME, then a command that prints the variables of rank $r
  name=$1
  ranks=()
  for r in 0 1 2 3 4 5 6 7; do
    env $(eval "$2") bin/pretrain_gpt $(line "$name") $layout >"$work/$name.$r.log" 2>&1 &
    ranks+=($!)
  done
  for pid in "${ranks[@]}"; do wait "$pid" || { tail -n 2 "$work/$name".*.log; echo "FAILED: $name"; exit 1; }; done
  same "$name" one
}
by_hand srun 'echo SLURM_PROCID=$r SLURM_NTASKS=8 SLURM_LOCALID=$r SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=8 SLURM_JOB_ID=4711'
by_hand mpirun 'echo OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=$r OMPI_COMM_WORLD_LOCAL_SIZE=8 PMIX_NAMESPACE=show-$$'
