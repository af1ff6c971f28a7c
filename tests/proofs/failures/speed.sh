# An all-reduce between two processes by every way, beside Gloo's own sums and, where
# PYTHON has torch, torch.distributed's; then the start of 8 processes to their first
# step's line; then what heartbeats and the record of collectives cost of a step's
# processor time, which must stay below 0.5%.
. "$(dirname "$0")/../common.sh"
make --no-print-directory gloo || true # its columns are then left out
if "$python" -c 'import torch' 2>/dev/null; then export PYTHON=$python; else unset PYTHON; fi
bin/monotron bench comm
start=$(date +%s.%N)
bin/monotron launch --nproc-per-node 8 -- pretrain_gpt --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \
  --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --train-iters 1 --lr 1e-2 --log-interval 1 --mock-data \
  --tokenizer-type NullTokenizer --vocab-size 50 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --eval-iters 0 --eval-interval 1000 \
  >"$work/log" 2>&1 || { tail -3 "$work/log"; exit 1; }
grep preflight "$work/log"
echo "8 processes, from the command to the end of a run of one step: $(echo "$(date +%s.%N) - $start" | bc) s"

# 8 processes, TP2 x PP2 x DP2: processor seconds of a step, as the difference of a run
# of 12 steps and one of 2; calls of a rank in a step, as its flight record counts them
steps() { # STEPS: processor seconds and wall seconds of the run, its record in $work/run$1
  TIMEFORMAT='%U %S %R'
  { time bin/monotron launch --nproc-per-node 8 --run-folder "$work/run$1" -- pretrain_gpt --num-layers 4 --hidden-size 256 --num-attention-heads 8 \
    --seq-length 256 --max-position-embeddings 256 --micro-batch-size 1 --global-batch-size 16 --train-iters "$1" --lr 1e-3 --log-interval 1 --mock-data \
    --tokenizer-type NullTokenizer --vocab-size 1000 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --eval-iters 0 --eval-interval 1000 \
    >"$work/log" 2>"$work/notes"; } 2>&1 | awk '{ print $1 + $2, $3 }'
}
calls() { bin/monotron postmortem "$work/run$1" --last 0 | sed -nE 's/.* ([0-9]+) calls, the last .*/\1/p' | sort -n | tail -1; }
cost() { go test -run '^$' -bench "^Benchmark$1\$" -cpu 1 ./mpu/health | sed -nE 's,.* ([0-9.e+]+) cpu-ns/op.*,\1,p'; }
short=$(steps 2) long=$(steps 12)
echo "$short $long $(calls 2) $(calls 12) $(cost Call) $(cost Beat)" | awk '
  { cpu = ($3 - $1) / 10; wall = ($4 - $2) / 10; n = ($6 - $5) / 10
    ledger = 8 * n * $7 / 1e9; beats = 8 * wall * $8 / 1e9; share = 100 * (ledger + beats) / cpu
    printf "a step of 8 processes: %.2f s of processor time; %.0f calls a rank at %.2f us, a beat a second at %.0f us: %.3f%% of the step\n", cpu, n, $7 / 1e3, $8 / 1e3, share
    exit !(cpu > 0 && n > 0 && share < 0.5) }' || { echo "FAILED: it costs 0.5% or more, or could not be measured"; exit 1; }
