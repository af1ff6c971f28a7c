# Job scripts and command lines as the pages show them, under the real programs: Slurm (a controller and two
# daemons on this host, which pose as two nodes), Open MPI, MPICH, torchrun over two network namespaces. Prints a table of launcher,
# version, losses compared with one process, and the exit codes of a stop, a kill -9 of a rank and a requeue.
# Each part is skipped with the reason where its program or permission is missing. Needs root for Slurm and namespaces; PYTHON: one with torch.
. "$(dirname "$0")/../common.sh"
bin=$PWD/bin
repository=$PWD
export PATH=$bin:$PATH
ln -sfn monotron "$bin/pretrain_gpt"
table=$work/table
echo "launcher|version|losses|TERM to a rank|signal to the launcher|kill -9 of a rank|requeue" >"$table"
failed=0
row() { echo "$1" >>"$table"; }
wrong() {
  echo "FAILED: $*"
  failed=1
}

# The data and flags of docs/jobs.
mkdir -p "$work/run"
cd "$work/run" || exit
for ((d = 0; d < 40; d++)); do
  printf '{"text":"%d' $((d * d % 50))
  for ((i = 1; i < 90; i++)); do printf ' %d' $(((d * d + i * 7 + i * i * d) % 50)); done
  printf '"}\n'
done >text.jsonl
monotron preprocess_data --input text.jsonl --output-prefix text --tokenizer-type NullTokenizer --vocab-size 50 --workers 1 >/dev/null
flags="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer --num-layers 4 --hidden-size 32 --num-attention-heads 4
  --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --lr 1e-2 --log-interval 1 --tokenizer-type NullTokenizer --vocab-size 50
  --make-vocab-size-divisible-by 2 --data-path text_text_document --split 8,1,1 --eval-interval 4 --eval-iters 2"
long="--train-iters 100000 --eval-interval 100000 --lr-decay-iters 100000"
pretrain_gpt $flags --train-iters 4 --world-size 8 --log-jsonl one.jsonl >one.log 2>&1 || { tail -n 5 one.log; exit 1; }

equal() { # NAME JSONL
  if cmp -s <(losses one.jsonl) <(losses "$2"); then echo "equal"; else
    wrong "$1: losses differ: $(losses "$2" | tr '\n' ' ')" >&2
    echo "differ"
  fi
}
await() { # JSONL LINES
  for _ in $(seq 900); do
    [ "$(cat "$1" 2>/dev/null | wc -l)" -lt "$2" ] || return 0
    sleep 0.1
  done
  wrong "$1 never had $2 lines"
}
rank_of() { # JSONL RANK: the process of a rank, by its environment
  local p
  for p in $(pgrep -f "log-jsonl $1"); do
    if tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qxE "(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID)=$2" &&
      [ "$(tr '\0' ' ' <"/proc/$p/cmdline" | grep -cE '^[^ ]*(pretrain_gpt|monotron) ')" = 1 ]; then echo "$p"; fi
  done
}

# launchers PID: the launchers of a run: PID, or, where that is the shell of a function, those that it has started
launchers() { pgrep -P "$1" -f torch.distributed.run || echo "$1"; }

# launched NAME VERSION STOP SIGNAL CANCEL KILL COMMAND...: COMMAND runs pretrain_gpt with the flags that follow it, and ends with the codes that
# docs/launch.md has (STOP, CANCEL after SIGNAL to the launcher, KILL: regular expressions)
launched() {
  local name=$1 version=$2 stops=$3 signal=$4 cancels=$5 kills=$6 same stop cancel kill pid code
  shift 6
  rm -rf a.jsonl b.jsonl c.jsonl ck-b
  "$@" pretrain_gpt $flags --train-iters 4 --log-jsonl a.jsonl >a.log 2>&1 || { tail -n 5 a.log; wrong "$name: exit code $?"; }
  same=$(equal "$name" a.jsonl)
  # SIGTERM to one rank: all save.
  "$@" pretrain_gpt $flags $long --save ck-b --log-jsonl b.jsonl >b.log 2>&1 &
  pid=$!
  await b.jsonl 3
  kill -TERM "$(rank_of b.jsonl 3 | head -1)"
  code=0
  wait "$pid" || code=$?
  [ -s ck-b/latest_checkpointed_iteration.txt ] || wrong "$name: a stop saved nothing: $(tail -n 3 b.log)"
  [[ $code =~ ^($stops)$ ]] || wrong "$name: $code after a stop, not $stops"
  stop="$code, saved"
  # The signal to the launcher that it passes on: all save, which takes some seconds, too.
  rm -rf ck-b b.jsonl
  "$@" pretrain_gpt $flags $long --save ck-b --log-jsonl b.jsonl --inject sleep:rank=0:phase=save:seconds=4 >b.log 2>&1 &
  pid=$!
  await b.jsonl 3
  kill "-$signal" $(launchers "$pid")
  code=0
  wait "$pid" || code=$?
  [ -s ck-b/latest_checkpointed_iteration.txt ] || wrong "$name: a stop of the launcher saved nothing: $(tail -n 3 b.log)"
  [[ $code =~ ^($cancels)$ ]] || wrong "$name: $code after a stop of the launcher, not $cancels"
  cancel="$signal: $code, saved"
  # kill -9 of a rank
  "$@" pretrain_gpt $flags $long --log-jsonl c.jsonl >c.log 2>&1 &
  pid=$!
  await c.jsonl 3
  kill -9 "$(rank_of c.jsonl 5 | head -1)"
  code=0
  wait "$pid" || code=$?
  [[ $code =~ ^($kills)$ ]] || wrong "$name: $code after a rank was killed, not $kills"
  [ -z "$(pgrep -f 'log-jsonl c.jsonl' || true)" ] || sleep 15
  [ -z "$(pgrep -f 'log-jsonl c.jsonl' || true)" ] || wrong "$name: ranks are left after one was killed"
  kill=$code
  row "$name|$version|$same|$stop|$cancel|$kill|-"
}

slurm_part() {
  local host state job code mungeless
  for p in slurmctld slurmd srun sbatch scancel; do command -v $p >/dev/null || { echo "skipped: Slurm: no $p (Debian: slurm-wlm)"; return; }; done
  [ "$(id -u)" = 0 ] || { echo "skipped: Slurm: not root"; return; }
  host=$(hostname -s) state=$work/slurm
  mkdir -p "$state"/{ctl,d0,d1}
  export SLURM_CONF=$state/slurm.conf
  cat >"$SLURM_CONF" <<END
ClusterName=proof
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$state/ctl
SlurmdSpoolDir=$state/%n
SlurmctldPidFile=$state/ctl.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/ctl.log
SlurmdLogFile=$state/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
JobRequeue=1
KillWait=30
MinJobAge=3600
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName=d0 NodeHostname=$host NodeAddr=127.0.0.1 Port=17818 CPUs=8 State=UNKNOWN
NodeName=d1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17819 CPUs=8 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=d0,d1 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=d0,d1 MaxTime=INFINITE State=UP PriorityTier=2
END
  # The nodes' names resolve, as in a cluster: for the daemons and what they start, nobody else.
  (cat /etc/hosts && echo "127.0.0.1 d0 d1") >"$state/hosts"
  unshare --mount true 2>/dev/null || { echo "skipped: Slurm: mounts are not permitted"; return; }
  as_node() { exec unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$state/hosts" "$@"; }
  slurmctld -D >"$state/ctl.out" 2>&1 &
  daemons=($!)
  as_node slurmd -D -N d0 >"$state/d0.out" 2>&1 &
  daemons+=($!)
  as_node slurmd -D -N d1 >"$state/d1.out" 2>&1 &
  daemons+=($!)
  # Whatever happens, neither daemons nor jobs are left.
  over() {
    scancel --state=RUNNING -u root 2>/dev/null || true
    scancel --state=PENDING -u root 2>/dev/null || true
    sleep 3
    kill "${daemons[@]}" 2>/dev/null || true
    wait "${daemons[@]}" 2>/dev/null || true
  }
  trap 'over; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
  for _ in $(seq 100); do [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break || sleep 0.3; done
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] || { echo "skipped: Slurm's daemons do not run here: $(cat "$state"/*.out | tail -n 2)"; return; }
  # As pasted, but for the number of ranks that this host has: 4 a node.
  sed 's/--ntasks-per-node=8/--ntasks-per-node=4/' "$repository/docs/jobs/train.sbatch" >train.sbatch
  until_over() { # JOB: its exit code as CODE:SIGNAL, once it is over
    for _ in $(seq 600); do
      case $(scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p') in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) break ;; esac
      sleep 0.3
    done
    scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p; s/.* ExitCode=([0-9:]+).*/\1/p' | tr '\n' ' '
  }
  continued() { # JOB: whether it was requeued and has trained on from its checkpoint; then it is cancelled
    local out="slurm-$1.out"
    for _ in $(seq 800); do
      ! grep -qs 'loaded checkpoints/' "$out" || break
      sleep 0.3
    done
    if grep -q 'stopped after iteration' "$out" && grep -q 'loaded checkpoints/' "$out"; then echo "saved, requeued, continued"; else
      wrong "job $1 was not continued: $(tail -n 3 "$out")" >&2
      echo "lost"
    fi
    scancel "$1"
    until_over "$1" >"$work/cancelled"
  }
  rm -rf job.jsonl checkpoints
  job=$(sbatch --parsable train.sbatch)
  code=$(until_over "$job")
  if [ "$code" != "COMPLETED 0:0 " ]; then
    wrong "sbatch: $code: $(tail -n 3 "slurm-$job.out")"
    return
  fi
  local same
  same=$(equal sbatch job.jsonl)
  # A stop as at the end of its time: TERM to the ranks, 75, requeued, ends by itself.
  rm -rf job.jsonl checkpoints
  sed -E 's/--train-iters 4/--train-iters 1000/; s/--eval-interval 4/--eval-interval 5000/' train.sbatch >long.sbatch
  job=$(sbatch --parsable long.sbatch)
  await job.jsonl 5
  scancel --signal=TERM "$job" || wrong "scancel --signal=TERM: $(tail -n 2 "slurm-$job.out")"
  local requeued
  sleep 1
  requeued=$(until_over "$job")
  local times
  times=$(scontrol show job "$job" | sed -nE 's/.*Restarts=([0-9]+).*/\1/p')
  [ "$requeued $times" = "COMPLETED 0:0  1" ] || wrong "requeue: $requeued after $times restarts: $(tail -n 3 "slurm-$job.out")"
  grep -q '"iteration":1000,' job.jsonl || wrong "requeue: iteration 1000 is missing"
  # The time limit sends TERM by itself, and so does an urgent job that takes the nodes: saved, requeued, continued from there.
  local limited preempted
  sed -E 's/--train-iters 4/--train-iters 1000000/; s/--eval-interval 4/--eval-interval 5000000/; s/--time=24:00:00/--time=2/; s/TERM@300/TERM@60/' train.sbatch >limited.sbatch
  rm -rf job.jsonl checkpoints
  job=$(sbatch --parsable limited.sbatch)
  limited=$(continued "$job")
  rm -rf job.jsonl checkpoints
  job=$(sbatch --parsable --time=0 limited.sbatch)
  await job.jsonl 5
  until_over "$(sbatch --parsable --partition=urgent --nodes=2 --ntasks-per-node=8 --wrap='sleep 1')" >"$work/urgent"
  preempted=$(continued "$job")
  # scancel: Slurm ends the job; ranks have KillWait to save
  rm -rf job.jsonl checkpoints
  job=$(sbatch --parsable long.sbatch)
  await job.jsonl 5
  scancel "$job" || wrong "scancel: $(tail -n 2 "slurm-$job.out")"
  local cancelled
  cancelled=$(until_over "$job")
  for _ in $(seq 100); do [ -n "$(pgrep -f 'log-jsonl job.jsonl' || true)" ] || break; sleep 0.3; done
  [ -z "$(pgrep -f 'log-jsonl job.jsonl' || true)" ] || wrong "scancel: ranks are left"
  # kill -9 of a rank
  rm -rf job.jsonl checkpoints
  job=$(sbatch --parsable long.sbatch)
  await job.jsonl 5
  kill -9 "$(rank_of job.jsonl 5 | head -n 1)" || wrong "sbatch: rank 5 is not there"
  local killed
  killed=$(until_over "$job")
  [ "$killed" = "FAILED 137:0 " ] || wrong "sbatch: $killed after a rank was killed"
  row "sbatch docs/jobs/train.sbatch|$(slurmd -V)|$same|75|scancel: $cancelled|$killed|TERM: 75, requeued $times time, then $requeued; time limit: $limited; preemption: $preempted"
  # An allocation with one launcher a node.
  rm -rf a.jsonl
  MONOTRON_SECRET=0123456789abcdef0123456789abcdef salloc -Q -N2 --ntasks-per-node=1 srun bash -c "monotron launch --nproc-per-node 4 --nnodes 2 --node-rank \$SLURM_NODEID \
    --master-addr 127.0.0.1 --master-port 29641 --auto-restart -- pretrain_gpt $(echo $flags) --train-iters 4 --save ck-launch --log-jsonl a.jsonl" >a.log 2>&1 || { tail -n 5 a.log; wrong "launch under srun"; }
  row "srun monotron launch|$(slurmd -V)|$(equal "launch under srun" a.jsonl)|-|-|-|-"
  over
}

torchrun_part() {
  local a=mtt$$a b=mtt$$b
  "$python" -c 'import torch' 2>/dev/null || { echo "skipped: torchrun: $python has no torch (set PYTHON)"; return; }
  ip netns add "$a" 2>/dev/null && ip netns add "$b" || { echo "skipped: torchrun: network namespaces are not permitted"; return; }
  ip link add "v$$a" netns "$a" type veth peer name "v$$b" netns "$b"
  ip -n "$a" addr add 10.99.9.1/24 dev "v$$a"
  ip -n "$b" addr add 10.99.9.2/24 dev "v$$b"
  for n in "$a" "$b"; do ip -n "$n" link set lo up; ip -n "$n" link set "v$$${n: -1}" up; done
  # Its agents name their hosts in the rendezvous: each namespace has its name for itself.
  torchrun_two() {
    local first second code=0
    export MONOTRON_SECRET=0123456789abcdef0123456789abcdef
    ip netns exec "$b" unshare --uts sh -c 'hostname 10.99.9.2 2>/dev/null || hostname tb; exec "$@"' sh "$python" -m torch.distributed.run --no-python --nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr 10.99.9.1 --master-port 29533 "$@" &
    second=$!
    ip netns exec "$a" unshare --uts sh -c 'hostname ta; exec "$@"' sh "$python" -m torch.distributed.run --no-python --nnodes 2 --nproc-per-node 4 --node-rank 0 --master-addr 10.99.9.1 --master-port 29533 "$@" &
    first=$!
    wait $first || code=$?
    wait $second || code=$((code > 0 ? code : $?))
    return $code
  }
  launched "torchrun, two namespaces" "torch $("$python" -c 'import torch; print(torch.__version__)')" 1 TERM 1 1 torchrun_two
  ip netns del "$a"
  ip netns del "$b"
}

for part in ${PARTS:-slurm openmpi mpich torchrun}; do
  case $part in
    slurm) slurm_part ;;
    openmpi)
      if command -v mpirun.openmpi >/dev/null; then
        launched "Open MPI's mpirun" "$(mpirun.openmpi --version | sed -nE '1s/.* ([0-9.]+)$/\1/p')" 75 USR1 75 '137|74' mpirun.openmpi --allow-run-as-root --oversubscribe -np 8
      else echo "skipped: Open MPI: no mpirun.openmpi (Debian: openmpi-bin)"; fi ;;
    mpich)
      if command -v mpiexec.hydra >/dev/null; then
        launched "MPICH's mpiexec" "$(mpiexec.hydra --version | sed -nE 's/.*Version: *([0-9.]+).*/\1/p')" 75 TERM 75 9 mpiexec.hydra -n 8
      else echo "skipped: MPICH: no mpiexec.hydra (Debian: mpich)"; fi ;;
    torchrun) torchrun_part ;;
  esac
done
column -t -s '|' "$table"
exit $failed
