#!/usr/bin/env bash
# The linux/arm64 program under qemu: a tiny model is trained and prints the losses of the amd64
# program; the case tables of the CPU device agree with the oracle. SHARE (1: all): one in so
# many cases, which SEED picks. Needs qemu-user-static, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross.
source "$(dirname "$0")/../common.sh"
for program in qemu-aarch64-static aarch64-linux-gnu-gcc; do
  command -v "$program" >/dev/null || { echo "skipped: $program is not here (Debian: qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"; exit 0; }
done
share=${SHARE:-1} seed=${SEED:-1}
export GOFLAGS=-trimpath
arm() { CC=aarch64-linux-gnu-gcc CGO_ENABLED=1 GOOS=linux GOARCH=arm64 "$GO" "$@"; }
emulated() { qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"; }

[ -n "${TABLES_ONLY:-}" ] || {
  arm build -ldflags '-s -w' -o "$work/monotron" .
  seq -s ' ' 1 400 >"$work/numbers.txt"
  bin/preprocess_data --input "$work/numbers.txt" --input-format text --output-prefix "$work/numbers" --tokenizer-type NullTokenizer --vocab-size 500 --append-eod >/dev/null 2>&1
  # f32 alone: in bf16 the losses differ in the sixth digit, as between AVX2 and portable vectors on amd64.
  tiny="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4
    --train-iters 8 --lr 1e-3 --device cpu --tokenizer-type NullTokenizer --vocab-size 500 --data-path $work/numbers_text_document --split 100,0,0 --eval-iters 0 --log-interval 1"
  bin/monotron pretrain_gpt $tiny >"$work/amd64.log" 2>&1 || { tail -3 "$work/amd64.log"; echo "FAILED: amd64"; exit 1; }
  emulated "$work/monotron" pretrain_gpt $tiny >"$work/arm64.log" 2>&1 || { tail -3 "$work/arm64.log"; echo "FAILED: arm64"; exit 1; }
  for kind in amd64 arm64; do grep -o 'lm loss: [^ ]*' "$work/$kind.log" >"$work/$kind.losses" || true; done
  [ "$(wc -l <"$work/arm64.losses")" = 8 ] || { tail -3 "$work/arm64.log"; echo "FAILED: not 8 losses"; exit 1; }
  paste "$work/amd64.losses" "$work/arm64.losses"
  cmp "$work/amd64.losses" "$work/arm64.losses" || { echo "FAILED: losses differ"; exit 1; }
  echo "arm64: 8 printed losses in f32 are those of amd64"
}

arm test -c -vet=off -o "$work/cpu.test" ./csrc/cpu
status=0
(cd csrc/cpu && SHARE=$share SEED=$seed DRAWN=1 emulated "$work/cpu.test" -test.v -test.run '^(TestValues|TestDrawn|TestRefusals)$' -test.timeout 60m) >"$work/cases.log" 2>&1 || status=$?
[ "$status" = 0 ] || grep -vE '^ *(=== |--- (PASS|SKIP)|PASS$)' "$work/cases.log" | tail -20 || true
count() { grep -cE "^        --- $2: $1/" "$work/cases.log" || true; }
echo "arm64: TestValues $(count TestValues PASS) cases passed, $(count TestValues FAIL) failed, $(count TestValues SKIP) skipped (SHARE=$share SEED=$seed); TestDrawn $(count TestDrawn PASS) passed, $(count TestDrawn FAIL) failed"
[ "$status" = 0 ] && [ "$(count TestValues PASS)" -gt 0 ]
