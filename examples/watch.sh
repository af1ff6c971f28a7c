# The page of a run while it trains: steps.jsonl may be one that a run still writes.
mkdir run
for i in 1 2 3; do
  echo "{\"time\":\"2026-11-22T12:00:0${i}Z\",\"iteration\":$i,\"consumed_tokens\":${i}00,\"loss\":{\"lm loss\":$((9 - i))},\"learning_rate\":0.001,\"seconds\":1}"
done >run/steps.jsonl
monotron watch run --addr 127.0.0.1:0 2>watch.notes &
watching=$!
trap 'kill $watching' EXIT
for i in $(seq 1 100); do grep -q 'http://' watch.notes && break; sleep 0.1; done
address=$(sed -n 's|.*\(http://[^ ]*/\).*|\1|p' watch.notes)
test -n "$address"
echo "open $address in a browser; Ctrl-C ends it"
monotron watch --terminal run | grep -qE '^ +1 .* 3 step' # or without a browser: the curves over steps 1 to 3
