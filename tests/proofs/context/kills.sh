# kill -9 in the middle of a run whose sequences are cut over ranks (CP2xTP2); resumed as
# CP4, killed again, and ended by one rank: a checkpoint holds nothing of the cut.
. "$(dirname "$0")/../common.sh"
text
train one
killed() { # name, iteration, flags: runs until the iteration is logged, then kill -9
  local name=$1 at=$2 pid
  shift 2
  bin/pretrain_gpt $(line "$name") --save-interval 5 --save "$work/ckpt" --load "$work/ckpt" "$@" >"$work/$name.log" 2>&1 &
  pid=$!
  until grep -q "\"iteration\":$at," "$work/$name.jsonl" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || { tail -5 "$work/$name.log"; echo "FAILED: $name ended before step $at"; exit 1; }
    sleep 0.05
  done
  kill -9 "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}
killed first 8 --world-size 4 --context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer
killed second 13 --world-size 4 --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2
train third --save "$work/ckpt" --load "$work/ckpt"
cat "$work/second.jsonl" "$work/first.jsonl" >>"$work/third.jsonl"
read -r n worst <<<"$(apart third one)"
echo "killed after step 8 under cp2 x tp2 and after step 13 under cp4: $n losses, worst difference from one rank $worst"
[ "$n" = 20 ] && awk -v w="$worst" 'BEGIN { exit !(w <= 1e-5) }' || { echo FAILED; exit 1; }
diff <(consumed third) <(consumed one) && echo "consumed samples: the same in every step"
