# kill -9 in the middle of a TP2xPP2xDP2 run; resumed as TP1xPP1xDP8, killed
# again, and back.
. "$(dirname "$0")/../common.sh"
text
train one
tp2pp2dp2="--world-size 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"
dp8="--world-size 8"
killed() { # name, iteration, flags: runs until the iteration is logged, then kill -9
  local name=$1 at=$2
  shift 2
  (train "$name" "$@" --save "$work/ckpt" --load "$work/ckpt" --micro-batch-size 1) >/dev/null 2>&1 &
  until grep -q "\"iteration\":$at," "$work/$name.jsonl" 2>/dev/null; do sleep 0.05; done
  pkill -9 -f "$work/$name.jsonl" || true
  wait || true
}
killed first 8 $tp2pp2dp2
killed second 13 $dp8
train third $tp2pp2dp2 --save "$work/ckpt" --load "$work/ckpt" --micro-batch-size 1
cat "$work/second.jsonl" "$work/first.jsonl" >>"$work/third.jsonl"
read -r n worst <<<"$(apart third one)"
echo "killed after step 8 and after step 13: $n losses, worst difference from one rank $worst"
[ "$n" = 20 ] && awk -v w="$worst" 'BEGIN { exit !(w <= 1e-5) }' || { echo FAILED; exit 1; }
diff <(consumed third) <(consumed one) && echo "consumed samples: the same in every step"
