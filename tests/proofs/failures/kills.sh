# COUNT (200) kills: each run of 8 processes loses a random rank by kill -9 at a random
# moment and goes on by --auto-restart: all end with the weights of the undisturbed run.
# SEED chooses ranks and moments.
. "$(dirname "$0")/../common.sh"
count=${COUNT:-200}
RANDOM=${SEED:-1}
text
run() { # NAME: 24 steps, a checkpoint every 3
  bin/monotron launch --nproc-per-node 8 --auto-restart --run-folder "$work/$1.run" -- pretrain_gpt \
    --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 \
    --global-batch-size 8 --train-iters 24 --lr 1e-3 --lr-decay-style cosine --eval-interval 12 --eval-iters 1 --log-interval 1 \
    --tokenizer-type GPT2BPETokenizer --train-data-path "$work/text_train_document" --valid-data-path "$work/text_val_document" \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer \
    --save "$work/$1" --load "$work/$1" --save-interval 3 --keep-last 2 >"$work/$1.log" 2>&1
}
start=$(date +%s%N)
run calm || { tail -3 "$work/calm.log"; echo "FAILED: the undisturbed run"; exit 1; }
took=$((($(date +%s%N) - start) / 1000000))
want=$(weights "$work/calm")
echo "undisturbed: $took ms, weights $want"
good=0 disturbed=0
for ((i = 1; i <= count; i++)); do
  rank=$((RANDOM % 8)) after=$((RANDOM * 32768 + RANDOM)) # two draws whatever comes
  run "kill$i" &
  launcher=$!
  sleep "$(awk "BEGIN { print $((after % took)) / 1000 }")"
  # the rank's process says in its environment which it is
  for pid in $(pgrep -f "pretrain_gpt .*--save $work/kill$i " || true); do
    if { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep -qx "RANK=$rank"; then kill -9 "$pid" 2>/dev/null || true; fi
  done
  code=0
  wait "$launcher" || code=$?
  if grep -q 'signal 9' "$work/kill$i.log"; then disturbed=$((disturbed + 1)); fi
  got=$(weights "$work/kill$i" 2>/dev/null) || got=none
  if [ $code -eq 0 ] && [ "$got" = "$want" ]; then
    good=$((good + 1))
  else
    echo "FAILED: run $i, rank $rank, code $code, weights $got"
    tail -3 "$work/kill$i.log"
  fi
  rm -rf "$work/kill$i" "$work/kill$i.run"
done
echo "$good of $count runs end with weights $want; $disturbed were hit while they ran (seed ${SEED:-1})"
[ $good -eq "$count" ]
