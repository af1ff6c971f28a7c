# kill -9 at random moments of preprocess_data (KILLS, 30), each time --resume: the same bytes.
. "$(dirname "$0")/../common.sh"
bin=$PWD/bin
text=${TEXT:-$work/go.jsonl}
[ -f "$text" ] || python3 scripts/bench-data/corpus.py "$(go env GOROOT)/src" "$text"
cd "$work" || exit
run() { "$bin/preprocess_data" --input "$text" --output-prefix "$1/x" --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 --resume-interval 50ms "${@:2}" 2>>log; }
mkdir want
start=$(date +%s%N)
run want
took=$((($(date +%s%N) - start) / 1000000))
kills=0
rounds=0
while [ $kills -lt "${KILLS:-30}" ]; do
  rounds=$((rounds + 1))
  mkdir "out$rounds"
  more=
  while :; do
    run "out$rounds" $more &
    sleep "$(awk -v t=$took -v r=$RANDOM 'BEGIN { printf "%.3f", t / 1000 * r / 32768 }')"
    kill -9 $! 2>/dev/null || true
    if wait $! 2>/dev/null; then break; fi
    kills=$((kills + 1))
    if [ -e "out$rounds/x_text_document.idx" ] && ! cmp -s "out$rounds/x_text_document.idx" want/x_text_document.idx; then
      echo "FAIL: an unfinished index under its final name" && exit 1
    fi
    more=--resume
  done
  for f in bin idx json; do
    cmp "want/x_text_document.$f" "out$rounds/x_text_document.$f" || { echo "FAIL in round $rounds"; exit 1; }
  done
  [ "$(ls -A "out$rounds" | wc -l)" = 3 ] || { ls -lA "out$rounds"; echo "FAIL: something was left behind"; exit 1; }
  rm -r "out$rounds"
done
echo "$kills kills in $rounds runs of $took ms: the same bytes every time ($(grep -c 'continuing at' log) resumed midway)"
