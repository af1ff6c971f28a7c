# The run of 4 experts, top 2, over 2 ranks at its own size: vocabulary 50304, 12 layers of 768,
# 237,092,400 parameters on a rank. Two ranks as goroutines and as two processes make the same
# step on Shakespeare, bit for bit, and tell what they send and get alike at both ends. SAMPLES
# (4) of 1024 tokens are a step, 1 a micro-batch; with FULL=1 also the whole step, 512 samples
# in 16 accumulation steps of 16: about 15 GB, more than an hour of 2 cores with AVX-512.
. "$(dirname "$0")/../common.sh"
need "$shared/data/tinyshakespeare.txt"
need "$shared/data/wikitext2-valid.txt"
SAMPLES=${SAMPLES:-4} DEVICE=${DEVICE:-auto} FULL=${FULL:-}
cat "$shared/data/tinyshakespeare.txt" "$shared/data/wikitext2-valid.txt" >"$work/both.txt"
bin/preprocess_data --input "$work/both.txt" --input-format text --output-prefix "$work/both" --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 >/dev/null

flags() { # NAME MICRO GLOBAL
  echo "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2
    --num-layers 12 --hidden-size 768 --num-attention-heads 12 --ffn-hidden-size 3072 --swiglu --position-embedding-type rope
    --hidden-dropout 0 --attention-dropout 0 --tokenizer-type GPT2BPETokenizer --data-path $work/both_text_document --split 100,0,0
    --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size $2 --global-batch-size $3 --train-iters 1 --eval-iters 0
    --lr 6e-4 --min-lr 6e-5 --lr-decay-style cosine --lr-warmup-iters 0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1.0
    --bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --log-moe-exchanges --log-jsonl $work/$1.jsonl --device $DEVICE"
}

# told NAME: what it said of exchanges, in the order of layers, micro-batches and ranks
told() { grep -hoE 'rank [01]: layer [0-9]+, micro-batch [0-9]+: sent \[.*\], received \[.*\]' "$work/$1.log" | sort; }

# look NAME: parameters of a rank, exchanges, and that both ends agree
look() {
  grep -q 'parallel rank (0, 0, 0): 237092400' "$work/$1.log" || { echo "FAILED: $1: not 237092400 parameters on a rank"; exit 1; }
  told "$1" | sed 's/[^0-9]\+/ /g' | awk -v name="$1" '
    { key = $2 " " $3 } $1 == 0 { a[key] = $5 " " $7; n++ } $1 == 1 { b[key] = $6 " " $4 }
    END { for (k in a) if (a[k] != b[k]) bad++
          printf "%s: %d exchanges, told by both ranks, %d unequal\n", name, n, bad; exit !(n > 0 && bad == 0) }' || { echo "FAILED: exchanges of $1"; exit 1; }
  sed -nE 's/.*"loss":\{"lm loss":([0-9.]+)\}.*"grad_norm":([0-9.]+).*"seconds":([0-9.]+).*"tokens_per_second":([0-9.]+).*/  lm loss \1, gradient norm \2, \3 s, \4 tokens\/s/p' "$work/$1.jsonl"
}

bin/pretrain_gpt --world-size 2 $(flags goroutines 1 "$SAMPLES") >"$work/goroutines.log" 2>&1 || { tail -3 "$work/goroutines.log"; exit 1; }
look goroutines
bin/monotron launch --nproc-per-node 2 -- pretrain_gpt $(flags processes 1 "$SAMPLES") >"$work/processes.log" 2>&1 || { tail -3 "$work/processes.log"; exit 1; }
look processes
cmp <(told goroutines) <(told processes) || { echo "FAILED: goroutines and processes send otherwise"; exit 1; }
same goroutines processes
[ -z "$FULL" ] && exit 0
bin/pretrain_gpt --world-size 2 $(flags full 16 512) >"$work/full.log" 2>&1 || { tail -3 "$work/full.log"; exit 1; }
look full
