# 200 steps of the run of 4 experts, top 2, over 2 ranks, in small, on Shakespeare: with the
# balancing loss each expert's tokens of the last 20 steps are within 10% of an even part in
# every layer, and the loss falls; without it they are far from even. SEED chooses the weights.
. "$(dirname "$0")/../common.sh"
need "$shared/data/tinyshakespeare.txt"
SEED=${SEED:-1} DEVICE=${DEVICE:-auto} STEPS=${STEPS:-200}
bin/preprocess_data --input "$shared/data/tinyshakespeare.txt" --input-format text --output-prefix "$work/shakespeare" --tokenizer-type CharTokenizer --workers 2 >/dev/null

run() { # NAME COEFFICIENT
  bin/pretrain_gpt --world-size 2 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --num-experts 4 --moe-router-topk 2 \
    --moe-aux-loss-coeff "$2" --num-layers 4 --hidden-size 96 --num-attention-heads 4 --ffn-hidden-size 192 --swiglu --position-embedding-type rope \
    --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 64 --train-iters "$STEPS" --attention-dropout 0 --hidden-dropout 0 \
    --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-iters 10 --adam-beta2 0.95 --clip-grad 1.0 --init-method-std 0.05 \
    --tokenizer-type CharTokenizer --vocab-file "$work/shakespeare_vocab.json" --data-path "$work/shakespeare_text_document" --split 100,0,0 --eval-iters 0 \
    --log-interval 50 --log-moe-exchanges --log-jsonl "$work/$1.jsonl" --seed "$SEED" --device "$DEVICE" >"$work/$1.log" 2>&1 || { tail -5 "$work/$1.log"; exit 1; }
}

# shares NAME: "least most" of all experts and layers, as shares of an even part over the last 20 steps
shares() {
  tail -20 "$work/$1.jsonl" | grep -o '"min":[0-9.]*,"max":[0-9.]*' | tr -c '0-9.\n' ' ' |
    awk 'NR == 1 { least = $1 } { if ($1 < least) least = $1; if ($2 > most) most = $2; l += $1; m += $2 } END { printf "%.3f %.3f %.3f %.3f\n", l / NR, m / NR, least, most }'
}

# ends NAME: exchanges that were told from both ends, and how many of those differ
ends() {
  sed -nE 's/^rank ([01]): layer ([0-9]+), micro-batch ([0-9]+): sent \[([0-9]+) ([0-9]+)\], received \[([0-9]+) ([0-9]+)\].*/\1 \2 \3 \4 \5 \6 \7/p' "$work/$1.log" |
    awk '{ key = $2 " " $3 " " ++seen[$1 " " $2 " " $3]
           if ($1 == 0) { there[key] = $5; back[key] = $6 == "" ? 0 : $7 } else { got[key] = $6; sent[key] = $4 } }
         END { for (k in there) { n++; if (there[k] != got[k] || sent[k] != back[k]) bad++ } print n + 0, bad + 0 }'
}

run balanced 2e-2
run free 0
for name in balanced free; do
  read -r least most lowest highest < <(shares $name)
  read -r n bad < <(ends $name)
  first=$(losses "$work/$name.jsonl" | head -1 | cut -d' ' -f2) last=$(losses "$work/$name.jsonl" | tail -1 | cut -d' ' -f2)
  echo "$name: lm loss $first to $last; an expert's tokens of an even part, mean over layers and the last 20 steps: least $least, most $most (at the ends $lowest, $highest); $n exchanges told from both ends, $bad unequal"
  [ "$n" -gt 0 ] && [ "$bad" -eq 0 ] || { echo "FAILED: exchanges"; exit 1; }
  awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.7 * a) }' || { echo "FAILED: the loss does not fall"; exit 1; }
  case $name in
  balanced) awk -v l="$least" -v m="$most" 'BEGIN { exit !(l >= 0.9 && m <= 1.1) }' || { echo "FAILED: not balanced"; exit 1; } ;;
  free) awk -v l="$least" -v m="$most" 'BEGIN { exit !(m > 1.3 || l < 0.7) }' || { echo "FAILED: even without a balancing loss, which then proves nothing"; exit 1; } ;;
  esac
done
