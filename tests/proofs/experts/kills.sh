# kill -9 at COUNT random moments of a run of experts over 2 ranks, with biases of experts, each
# followed by a resume: the final loss and weights are the undisturbed run's, bit for bit; and
# the run goes on from one layout to others, as EP4 and as EP1 with ZeRO-3. SEED repeats the moments.
. "$(dirname "$0")/../common.sh"
COUNT=${COUNT:-30} SEED=${SEED:-1} DEVICE=${DEVICE:-auto}
for i in $(seq 1 200); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 120)))\"}"; done >"$work/text.jsonl"
bin/preprocess_data --input "$work/text.jsonl" --output-prefix "$work/d" --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 >/dev/null

under() { # folder layout..
  local folder=$1
  shift
  echo "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --swiglu --disable-bias-linear
    --num-experts 4 --moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-aux-loss-coeff 1e-2
    --micro-batch-size 2 --global-batch-size 8 --train-iters 40 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --seed 7
    --tokenizer-type GPT2BPETokenizer --data-path $work/d_text_document --split 100,0,0 --eval-iters 0
    --save $folder --load $folder --save-interval 5 --log-interval 1 --log-jsonl $folder.jsonl --device $DEVICE $*"
}
ep2="--world-size 2 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"
flags() { printf '%s\n' $(under "$1" $ep2); }

kills "$COUNT" "$SEED"

# From a save of EP2 at step 20 on, under other layouts.
while read -r name layout; do
  rm -rf "${work:?}/$name"*
  cp -r "$work/whole" "$work/$name"
  rm -rf "$work/$name"/iter_00000{25,30,35,40}
  echo 20 >"$work/$name/latest_checkpointed_iteration.txt"
  bin/pretrain_gpt $(under "$work/$name" $layout) >"$work/$name.log" 2>&1 || { tail -3 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
  read -r n most < <(apart whole "$name")
  echo "$name: $n losses after step 20, at most $most from those under EP2"
  awk -v n="$n" -v m="$most" 'BEGIN { exit !(n == 20 && m < 2e-4) }' || { echo "FAILED: $name"; exit 1; }
done <<LAYOUTS
ep4 --world-size 4 --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall
ep1 --world-size 1
zero3 --world-size 2 --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params
LAYOUTS
