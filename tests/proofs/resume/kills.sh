# kill -9 at COUNT random moments of a run that saves every 5 steps, each
# followed by a resume: the final loss and weights must equal the undisturbed
# run's, every time. SEED repeats the moments.
. "$(dirname "$0")/../common.sh"
COUNT=${COUNT:-50} SEED=${SEED:-1} DEVICE=${DEVICE:-auto}
RANDOM=$SEED
for i in $(seq 1 200); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 120)))\"}"; done >"$work/text.jsonl"
bin/preprocess_data --input "$work/text.jsonl" --output-prefix "$work/d" --tokenizer-type GPT2BPETokenizer --append-eod --workers 2

flags() { # folder: one flag or value a line
  printf '%s\n' --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 \
    --micro-batch-size 2 --global-batch-size 4 --train-iters 40 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --seed 7 \
    --tokenizer-type GPT2BPETokenizer --data-path "$work/d_text_document" --split 90,10,0 --eval-interval 20 --eval-iters 2 \
    --save "$1" --load "$1" --save-interval 5 --log-interval 1 --log-jsonl "$1.jsonl" --device "$DEVICE"
}
mapfile -t whole < <(flags "$work/whole")
mapfile -t broken < <(flags "$work/k")

start=$(date +%s%N)
bin/pretrain_gpt "${whole[@]}" >"$work/whole.log" 2>&1
took=$((($(date +%s%N) - start) / 1000000))
want="$(losses "$work/whole.jsonl" | tail -1) $(weights "$work/whole")"
echo "undisturbed: $want in $took ms"

killed=0
for n in $(seq 1 "$COUNT"); do
  rm -rf "$work"/k "$work"/k.*
  moment=$((RANDOM * took / 32768))
  bin/pretrain_gpt "${broken[@]}" >"$work/k.log" 2>&1 &
  pid=$!
  sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
  if kill -9 "$pid" 2>/dev/null; then killed=$((killed + 1)); fi
  wait "$pid" 2>/dev/null || true
  reached=$(losses "$work/k.jsonl" 2>/dev/null | tail -1 | cut -d' ' -f1) || reached=0 # killed before its first step
  bin/pretrain_gpt "${broken[@]}" >>"$work/k.log" 2>&1 || { tail -5 "$work/k.log"; echo "FAILED: resume $n (killed at $moment ms, seed $SEED)"; exit 1; }
  got="$(losses "$work/k.jsonl" | tail -1) $(weights "$work/k")"
  if [ "$got" != "$want" ]; then
    echo "FAILED: resume $n (killed at $moment ms, after step ${reached:-0}, seed $SEED): $got"
    exit 1
  fi
  [ $((n % 10)) -ne 0 ] || echo "$n resumes equal so far"
done
echo "kills: $killed of $COUNT runs killed while running, $COUNT resumes, all equal to the undisturbed run (seed $SEED)"
