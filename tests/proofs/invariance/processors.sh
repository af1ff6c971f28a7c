#!/usr/bin/env bash
# With --layout-invariant all processors give the same bits. Models are trained with the best instructions here, without AMX, with
# AVX2, with portable C, and with the arm64 program under qemu: one hash of all weights at each step. Then every op's cases: what comes
# out on arm64 is what comes out on amd64, where the inputs are the same. SHARE (1: all): one in so many cases, which SEED picks.
# STEPS (6). arm64 needs qemu-user-static, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross.
source "$(dirname "$0")/../common.sh"
share=${SHARE:-1} seed=${SEED:-1} steps=${STEPS:-6}
export GOFLAGS=-trimpath
llama="--swiglu --normalization RMSNorm --group-query-attention --num-query-groups 4 --position-embedding-type rope --disable-bias-linear --ffn-hidden-size 128"
declare -A models=(
  [gpt2]="--attention-dropout 0.1 --hidden-dropout 0.1"
  [llama]="$llama --untie-embeddings-and-output-weights --qk-layernorm"
  [mixture]="$llama --num-experts 8 --moe-ffn-hidden-size 64 --moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
    --moe-shared-expert-intermediate-size 64 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001"
  [alibi]="--position-embedding-type alibi --embed-layernorm"
  [muon]="$llama --optimizer muon"
  [bf16]="--bf16"
  [pairs]="--bf16 --reduction-leaves 2"
  [fp16]="$llama --fp16 --initial-loss-scale 1024"
)
base="--device cpu --layout-invariant --mock-data --tokenizer-type NullTokenizer --vocab-size 500 --num-layers 2 --hidden-size 64 --num-attention-heads 8 --seq-length 64
  --max-position-embeddings 64 --global-batch-size 4 --micro-batch-size 2 --train-iters $steps --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-iters 2 --clip-grad 0.5
  --eval-iters 0 --log-weights-hash 1 --no-plan"
emulated() { qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"; }

# hashes NAME MODEL PROGRAM..: the hashes of a run's steps, in $work/NAME.MODEL
hashes() {
  local log="$work/$1.$2.jsonl"
  "${@:3}" pretrain_gpt $base ${models[$2]} --log-jsonl "$log" >"$work/$1.$2.log" 2>&1 || { tail -3 "$work/$1.$2.log"; echo "FAILED: $2 on $1"; exit 1; }
  grep -o '"weights_hash":"[0-9a-f]*"' "$log" >"$work/$1.$2"
  [ "$(wc -l <"$work/$1.$2")" = "$steps" ] || { echo "FAILED: $2 on $1 has not $steps hashes"; exit 1; }
}

kinds="no-amx avx2 portable"
if command -v qemu-aarch64-static >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then
  kinds+=" arm64"
  arm=(env CC=aarch64-linux-gnu-gcc CGO_ENABLED=1 GOOS=linux GOARCH=arm64 "$GO")
  "${arm[@]}" build -ldflags '-s -w' -o "$work/monotron" .
else
  echo "arm64 is left out: no qemu-aarch64-static or no aarch64-linux-gnu-gcc (Debian: qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
fi
for model in "${!models[@]}"; do
  hashes best "$model" bin/monotron
  for kind in $kinds; do
    case $kind in
    arm64) hashes arm64 "$model" emulated "$work/monotron" ;;
    no-amx) MONOTRON_AMX=off hashes no-amx "$model" bin/monotron ;;
    *) MONOTRON_ISA=$kind hashes "$kind" "$model" bin/monotron ;;
    esac
    cmp -s "$work/best.$model" "$work/$kind.$model" || { echo "FAILED: $model on $kind: $(diff "$work/best.$model" "$work/$kind.$model" | head -2 | tail -1), step by step from there"; exit 1; }
  done
  echo "$model: one hash at each of $steps steps, ${kinds// /, } and the best vectors here: $(tail -1 "$work/best.$model" | cut -c17-32)"
done

case $kinds in *arm64*) ;; *) exit 0 ;; esac
"$GO" test -c -vet=off -o "$work/amd64.test" ./csrc/cpu
"${arm[@]}" test -c -vet=off -o "$work/arm64.test" ./csrc/cpu
(cd csrc/cpu && BITS=$work/amd64.bits SHARE=$share SEED=$seed "$work/amd64.test" -test.run '^TestListBits$' -test.timeout 60m)
(cd csrc/cpu && BITS=$work/arm64.bits SHARE=$share SEED=$seed emulated "$work/arm64.test" -test.run '^TestListBits$' -test.timeout 120m)
# Go makes inputs, by functions that differ: those that did are not compared.
awk -F '\t' 'NR == FNR { in_[$1] = $2; out[$1] = $3; next } !($1 in in_) { gone++; next } in_[$1] != $2 { apart++; next } out[$1] != $3 { print "FAILED: " $1; bad++; next } { same++ }
  END { printf "%d cases of ops have the same bits on arm64 and amd64, %d do not; %d have other inputs\n", same, bad, apart; exit bad || gone || same < 10 * apart || !same }' "$work/amd64.bits" "$work/arm64.bits"
