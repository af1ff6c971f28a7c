#!/bin/bash
# Claim: a server that follows a run answers with each iteration that the run has saved whole, and while the run's disk is full with the
# last one: texts are those that `generate` gives of the iteration that the answer names.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
disk=$work/disk
mkdir "$disk"
mount -t tmpfs -o size=${DISK:-60m} none "$disk" 2>/dev/null || { echo "skipped: a small disk takes the right to mount one"; exit 0; }
trap 'kill "${trainer:-}" "${server:-}" 2>/dev/null || true; umount "$disk"; [ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
text
train_on() { # ITERATIONS: saves every 10th
  bin/pretrain_gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 4 \
    --global-batch-size 4 --train-iters "$1" --lr 1e-2 --lr-decay-style constant --tokenizer-type GPT2BPETokenizer \
    --train-data-path "$work/text_train_document" --eval-iters 0 --save "$disk/run" --load "$disk/run" --save-interval 10
}
ask() { # the text, behind the iteration that says it
  "$python" -c 'import json, sys, urllib.request
a = json.load(urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps({"prompt": "ROMEO:", "max_tokens": 12, "seed": 1}).encode())))
print(a["system_fingerprint"], json.dumps(a["choices"][0]["text"]))' "$url"
}
agrees() { # what is answered is what generate says of that iteration
  local said iteration
  said=$(ask)
  iteration=${said%% *}
  want=$(bin/monotron generate --load "$disk/run" --ckpt-step "${iteration#iter-}" --prompt ROMEO: --max-new-tokens 12 --seed 1 --only-new --json 2>/dev/null |
    "$python" -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["text"]))')
  [ "${said#* }" = "$want" ] || { echo "FAILED: $said; generate says $want"; exit 1; }
  echo "$said, as generate says"
}
bin/monotron serve --load "$disk/run" --follow --port 0 2>"$work/notes" &
server=$!
train_on 20 >"$work/train.log" 2>&1 || { tail -3 "$work/train.log"; exit 1; }
until grep -sq '^ready' "$work/notes"; do kill -0 "$server" || { cat "$work/notes"; exit 1; }; sleep 0.1; done
url=$(sed -n 's/.*\(http:[^ ]*\)\/,.*/\1/p' "$work/notes")
agrees
train_on 400 >"$work/full.log" 2>&1 && { echo "FAILED: the disk was large enough"; exit 1; }
df --output=pcent "$disk" | tail -1
tail -1 "$work/full.log"
sleep 3
agrees
saved=$(cat "$disk/run/latest_checkpointed_iteration.txt")
rm -r "$disk/run/iter_0000010"
train_on $((saved + 10)) >"$work/more.log" 2>&1 || { tail -3 "$work/more.log"; exit 1; }
sleep 3
agrees
cat "$work/notes"
kill -TERM "$server"
wait "$server" || { echo "FAILED: the server ended with $?"; exit 1; }
