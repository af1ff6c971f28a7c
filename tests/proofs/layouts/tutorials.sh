# The tutorials' layouts on real text, 20 steps, stopped at 10 and resumed under
# another layout; every loss against one undisturbed rank.
. "$(dirname "$0")/../common.sh"
text
train one
tp4="--world-size 4 --tensor-model-parallel-size 4"
tp2dp2="--world-size 4 --tensor-model-parallel-size 2"
tp2pp3="--world-size 6 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 3"
zero=--use-distributed-optimizer
while read -r first later; do
  for sharding in "" $zero; do
    name=$first-to-$later$sharding
    train "$name-10" ${!first} $sharding --save "$work/$name" --exit-interval 10
    train "$name" ${!then} $sharding --save "$work/$name" --load "$work/$name"
    cat "$work/$name-10.jsonl" >>"$work/$name.jsonl"
    read -r n worst <<<"$(apart "$name" one)"
    echo "$first $sharding, from step 10 on $later: $n losses, worst difference from one rank $worst"
    [ "$n" = 20 ] && awk -v w="$worst" 'BEGIN { exit !(w <= 1e-5) }' || { echo FAILED; exit 1; }
    diff <(consumed "$name") <(consumed one) || { echo "FAILED: other samples"; exit 1; }
  done
done <<'LAYOUTS'
tp4 tp2dp2
tp2dp2 tp2pp3
tp2pp3 tp4
LAYOUTS
