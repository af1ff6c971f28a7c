# Object storage. Against moto (an S3 server of other authors): a run whose data boto3 has put into a bucket, and whose checkpoints are there,
# has the losses and weights of a run with files, and boto3 reads the checkpoints byte for byte. KILLS (40) runs of two ranks are killed by
# kill -9 at a random moment and resumed on a host that has nothing: each time the bucket has complete checkpoints alone, and the resumed
# run ends with the weights of the undisturbed one. Then FAULTS (1000) saves with faults of a server in the test's process, and as many fetches, and the
# rates of one object next to those of boto3 and of the local disk. SEED chooses the moments. PYTHON: one with moto[server] and boto3.
. "$(dirname "$0")/../common.sh"
peer moto boto3
text
RANDOM=${SEED:-1}
export PYTHON=$python
export AWS_ENDPOINT_URL_S3=http://127.0.0.1:${PORT:-5617} AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=us-east-1 XDG_CACHE_HOME=$work/cache
"$python" -m moto.server -p "${PORT:-5617}" >"$work/moto.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
s3() { "$python" tests/proofs/data/bucket.py "$@"; }
s3 make proof

# flags NAME DATA FLAGS..: those of 20 steps on two ranks, saved every second step, with JSON lines in $work/NAME.jsonl
flags() {
  local name=$1 data=$2
  shift 2
  line=(--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 8
    --train-iters 20 --lr 1e-3 --attention-dropout 0.1 --hidden-dropout 0.1 --eval-iters 0 --log-interval 1 --tokenizer-type GPT2BPETokenizer --world-size 2
    --use-distributed-optimizer --save-interval 2 --keep-last 2 --train-data-path "$data/text_train_document" --log-jsonl "$work/$name.jsonl" "$@")
}
run() {
  flags "$@"
  bin/pretrain_gpt "${line[@]}" >>"$work/$1.log" 2>&1
}
fails() {
  tail -n 4 "$work/$1.log"
  echo "FAILED: $2"
  exit 1
}

# The same numbers as with files.
run files "$work" --save "$work/files" || fails files "the run with files"
for f in "$work"/text_train_document.*; do s3 put "$f" proof "data/${f##*/}" >/dev/null; done
start=$(date +%s%N)
run bucket s3://proof/data --object-storage-cache-path "$work/data" --save s3://proof/run --load s3://proof/run --save-local-dir "$work/bucket" || fails bucket "the run with a bucket"
took=$((($(date +%s%N) - start) / 1000000))
same bucket files
want=$(weights "$work/files")
[ "$(weights "$work/bucket")" = "$want" ] || fails bucket "the weights differ"
s3 same "$work/bucket" proof run

# kill -9, then another host.
killed=0
kept=0
for ((n = 1; n <= ${KILLS:-40}; n++)); do
  rm -rf "$work"/k "$work"/k.*
  to=(--save "s3://proof/k$n" --load "s3://proof/k$n" --save-local-dir "$work/k")
  moment=$((RANDOM * took / 32768))
  flags k "$work" "${to[@]}"
  bin/pretrain_gpt "${line[@]}" >"$work/k.log" 2>&1 &
  pid=$!
  sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
  if kill -9 "$pid" 2>/dev/null; then killed=$((killed + 1)); fi
  wait "$pid" 2>/dev/null || true
  rm -rf "$work/k" "$work/k.jsonl"
  if bin/monotron inspect checkpoint --verify "s3://proof/k$n" >"$work/inspect.log" 2>&1; then kept=$((kept + 1)); elif ! grep -q 'no checkpoint' "$work/inspect.log"; then
    tail -n 2 "$work/inspect.log"
    fails k "kill $n at $moment ms (seed ${SEED:-1}): the bucket's checkpoint"
  fi
  rm -rf "$work/cache"
  run k "$work" "${to[@]}" || fails k "resume $n, killed at $moment ms (seed ${SEED:-1})"
  [ "$(weights "$work/k")" = "$want" ] || fails k "resume $n, killed at $moment ms (seed ${SEED:-1}): the weights differ"
  s3 has "$work/k" proof "k$n" >/dev/null || fails k "resume $n, killed at $moment ms (seed ${SEED:-1}): the bucket lacks it"
done
echo "kills: $killed of ${KILLS:-40} runs were killed while they ran, $kept had a checkpoint in the bucket, all resumed to the weights of the run with files (seed ${SEED:-1})"

# Faults of requests, and rates.
MONOTRON_FAULTS=${FAULTS:-1000} "$GO" test -count=1 -v -timeout 0 -run 'Faults$' ./megatron/checkpoint/remote | grep -E '_test.go|^(---|ok|FAIL)'
"$GO" test -run '^$' -bench '^BenchmarkRates$' -benchtime 5x -timeout 0 ./internal/store
