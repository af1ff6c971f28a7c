# SIGTERM or SIGUSR1 to one of 8 processes, in the set-up, an evaluation, a save: all end
# at the next step boundary, saved, with 75, and go on to the same numbers.
. "$(dirname "$0")/../common.sh"
SIGNALS=all nice -n 5 go test -v -count=1 -timeout 20m -run '^TestLaunch$/signal' ./tests | grep -v '^=== RUN'
# A time limit: all end at the next step boundary, saved, with 75.
code=0
bin/monotron launch --nproc-per-node 2 --run-folder "$work/run" -- pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \
  --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 2 --lr 1e-3 --train-iters 10000000 --eval-iters 0 --log-interval 1000 \
  --vocab-size 50 --tokenizer-type NullTokenizer --mock-data --exit-duration-in-mins 1 --save "$work/ck" --save-interval 100000000 >"$work/log" 2>&1 || code=$?
tail -1 "$work/log"
[ $code -eq 75 ] && [ -s "$work/ck/latest_checkpointed_iteration.txt" ] || { echo "FAILED: code $code"; exit 1; }
