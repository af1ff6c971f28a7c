# A GPT command line of Megatron's README (345M, fp16, nccl on a machine without
# GPUs): 3 steps; then with a smaller loss scale 8 steps, of which at least 5
# are not skipped and lower the loss; then a resume from iteration 4, bit for bit.
. "$(dirname "$0")/../common.sh"
need "$shared/data/gpt2-vocab.json"
head -c 2000000 "$shared/data/tinyshakespeare.txt" | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g' |
  awk 'NF { text = text $0 "\\n"; if (++n % 40 == 0) { print "{\"text\": \"" text "\"}"; text = "" } }' >"$work/text.jsonl"
monotron=$PWD/bin
cp "$shared/data/gpt2-vocab.json" "$work/vocab.json"
cp "$shared/data/gpt2-merges.txt" "$work/merges.txt"
cd "$work" || exit
"$monotron/preprocess_data" --input text.jsonl --output-prefix my-gpt2 --tokenizer-type GPT2BPETokenizer \
  --vocab-file vocab.json --merge-file merges.txt --append-eod --workers 2

line() { # iterations, save and load folder, more flags
  iters=$1 ckpt=$2
  shift 2
  "$monotron/pretrain_gpt" --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 24 --hidden-size 1024 \
    --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 2 \
    --lr 0.00015 --train-iters "$iters" --lr-decay-iters 320000 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 \
    --lr-warmup-fraction .01 --clip-grad 1.0 --fp16 --data-path my-gpt2_text_document --vocab-file vocab.json \
    --merge-file merges.txt --split 949,50,1 --log-interval 1 --save-interval 2 --eval-interval 100 --eval-iters 1 \
    --distributed-backend nccl --save "$ckpt" --load "$ckpt" --attention-softmax-in-fp32 --sequence-parallel "$@"
}

echo "== 3 iterations, as written"
line 3 ckpt
rm -rf ckpt
echo "== 8 iterations with --initial-loss-scale 65536"
line 8 ckpt --initial-loss-scale 65536 --log-jsonl first.jsonl
trained=$(grep -v '"validation"' first.jsonl | grep -vc '"skipped":true' || true)
falls=$(losses first.jsonl | awk 'NR == 1 { first = $2 } { last = $2 } END { print (last < first) ? "yes" : "no" }')
echo "steps not skipped: $trained; the loss falls: $falls"
[ "$trained" -ge 5 ] && [ "$falls" = yes ] || { echo FAILED; exit 1; }
cd - >/dev/null || exit
before=$(weights "$work/ckpt")
cd "$work" || exit
rm -rf ckpt/iter_0000006 ckpt/iter_0000008
echo "== resumed from iteration 4"
line 8 ckpt --initial-loss-scale 65536 --log-jsonl second.jsonl --ckpt-step 4
cd - >/dev/null || exit
diff <(losses "$work/first.jsonl" | awk '$1 > 4') <(losses "$work/second.jsonl") && [ "$before" = "$(weights "$work/ckpt")" ] ||
  { echo "FAILED: the resumed run differs"; exit 1; }
echo "megatron's line: resumed bit for bit, weights $before"
