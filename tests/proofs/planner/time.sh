# What a plan says of seconds is what steps then take on this machine: layouts of two models, and measure, by turns, as a machine's
# speed drifts. Nothing else should run. Prints a table for docs/plan.md: the median step beside the median of what the machine files
# predict; holds mean and worst error against MEAN (5) and WORST (12) percent. ROUNDS (3) of both; or in pieces, with one WORK
# folder: PIECE=measure and PIECE=run as often as one likes, then PIECE=table.
source "$(dirname "$0")/../common.sh"
piece=${PIECE:-all}
steps=${STEPS:-6}

common="--tokenizer-type NullTokenizer --vocab-size 2000 --mock-data --lr 1e-4 --lr-decay-style constant --log-interval 1 --eval-iters 0 --train-iters $steps"
gpt="$common --num-layers 8 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --global-batch-size 16"
llama="$common --num-layers 6 --hidden-size 448 --num-attention-heads 8 --group-query-attention --num-query-groups 4 --kv-channels 56 --ffn-hidden-size 1216 --swiglu
  --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
  --seq-length 192 --max-position-embeddings 192 --bf16 --global-batch-size 8"

tp="--tensor-model-parallel-size"
pp="--pipeline-model-parallel-size"
vp="--num-virtual-stages-per-pipeline-rank"
zero="--use-distributed-optimizer --data-parallel-sharding-strategy"
full="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
layouts() { # model, then what differs
  cat <<END
gpt --world-size 1 --micro-batch-size 1
gpt --world-size 1 --micro-batch-size 4
gpt --world-size 1 --micro-batch-size 16
gpt --world-size 1 --micro-batch-size 4 $full
gpt --world-size 2 --micro-batch-size 4
gpt --world-size 2 --micro-batch-size 1
gpt --world-size 4 --micro-batch-size 2
gpt --world-size 2 --micro-batch-size 4 $zero optim
gpt --world-size 2 --micro-batch-size 4 $zero optim_grads_params
gpt --world-size 4 --micro-batch-size 2 $zero optim_grads
gpt --world-size 2 --micro-batch-size 4 $tp 2
gpt --world-size 2 --micro-batch-size 4 $tp 2 --sequence-parallel
gpt --world-size 4 --micro-batch-size 4 $tp 4 --sequence-parallel
gpt --world-size 2 --micro-batch-size 2 $pp 2
gpt --world-size 2 --micro-batch-size 2 $pp 2 $vp 2
gpt --world-size 4 --micro-batch-size 2 $pp 4
gpt --world-size 4 --micro-batch-size 4 $tp 2 $pp 2 --sequence-parallel
gpt --world-size 8 --micro-batch-size 2 $tp 2 $pp 2 --sequence-parallel $zero optim
llama --world-size 1 --micro-batch-size 1
llama --world-size 1 --micro-batch-size 4
llama --world-size 1 --micro-batch-size 2 $full
llama --world-size 2 --micro-batch-size 2
llama --world-size 4 --micro-batch-size 2
llama --world-size 2 --micro-batch-size 2 $zero optim
llama --world-size 2 --micro-batch-size 2 $zero optim_grads_params
llama --world-size 2 --micro-batch-size 2 $tp 2
llama --world-size 2 --micro-batch-size 4 $tp 2 --sequence-parallel
llama --world-size 4 --micro-batch-size 2 $tp 4 --sequence-parallel
llama --world-size 2 --micro-batch-size 1 $pp 2
llama --world-size 2 --micro-batch-size 1 $pp 2 $vp 3
llama --world-size 4 --micro-batch-size 2 $tp 2 $pp 2 --sequence-parallel
llama --world-size 4 --micro-batch-size 2 $pp 2 $zero optim
END
}
flags() { # of a row
  local model=$1
  shift
  echo "${!model} $*"
}

measure() { # writes one more machine file
  bin/monotron measure --output "$work/here.$(ls "$work"/here.*.yaml 2>/dev/null | wc -l).yaml"
}
# The host of a virtual machine moves its cores while it runs. Steps count where a word between two of them took twice as long
# as the machine files say at most, before and after; others are made again, and left out of this round after TRIES (6).
near() {
  local apart now
  apart=$(sed -nE 's/^core_round_trip_seconds: //p' "$work"/here.*.yaml | sort -g | head -1)
  [ -n "$apart" ] || return 0 # one core
  now=$(bin/monotron bench cores --json | sed -E 's/.*:([0-9]+).*/\1/')
  awk -v now="$now" -v apart="$apart" 'BEGIN { exit !(now * 1e-9 <= 2 * apart) }'
}
run() { # adds the seconds of each layout's steps
  n=0
  while read -r row; do
    n=$((n + 1))
    for try in $(seq "${TRIES:-6}"); do
      near || { sleep 10; continue; }
      rm -f "$work/one.jsonl"
      bin/pretrain_gpt $(flags $row) --log-jsonl "$work/one.jsonl" >"$work/one.log" 2>&1 || { tail -3 "$work/one.log"; echo "FAILED: $row"; exit 1; }
      near || continue
      sed -nE 's/.*"iteration":([0-9]+),.*"seconds":([0-9.e-]+).*/\1 \2/p' "$work/one.jsonl" | awk '$1 > 2 { print $2 }' >>"$work/seconds.$n"
      continue 2
    done
    echo "left out of this round, the cores were far apart: $row"
  done < <(layouts)
}
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
predicted() { # by the machine files
  local file
  for file in "$work"/here.*.yaml; do
    bin/monotron plan run --machine "$file" --json pretrain_gpt "$@" | sed -E 's/.*"seconds_per_step":([0-9.e-]+).*/\1/'
  done | median
}
table() {
  echo "| model | layout | measured, s | predicted, s | error |"
  echo "|---|---|---|---|---|"
  n=0
  while read -r row; do
    n=$((n + 1))
    [ -e "$work/seconds.$n" ] || continue
    said=$(predicted $(flags $row))
    awk -v said="$said" -v row="$row" -v was="$(median <"$work/seconds.$n")" 'BEGIN {
      model = row; sub(/ .*/, "", model); sub(/^[a-z]+ /, "", row)
      printf "| %s | `%s` | %.4f | %.4f | %+.1f %% |\n", model, row, was, said, 100 * (said / was - 1) }'
  done < <(layouts) | tee "$work/table"
  awk -F'|' -v mean="${MEAN:-5}" -v worst="${WORST:-12}" '{ d = $6 + 0; if (d < 0) d = -d; s += d; n++; if (d > w) w = d } END {
    printf "%d layouts: mean error %.1f %%, worst %.1f %%\n", n, s / n, w; exit !(n >= 30 && s / n <= mean && w <= worst) }' "$work/table" || { echo "FAILED"; exit 1; }
}

case $piece in
measure | run | table) "$piece" ;;
*)
  for _ in $(seq "${ROUNDS:-3}"); do
    measure
    run
  done
  table
  ;;
esac
