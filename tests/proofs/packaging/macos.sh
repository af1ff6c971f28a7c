#!/usr/bin/env bash
# The darwin/arm64 program with cgo: what it is, which libraries it loads, that it is signed. It cannot run here: the same
# clang builds the CPU device for linux/arm64, whose case tables agree with the oracle under qemu, and for amd64.
# SHARE (1: all): one in so many cases, which SEED picks. Needs pip; qemu-user-static and libc6-dev-arm64-cross for arm64.
source "$(dirname "$0")/../common.sh"
share=${SHARE:-1} seed=${SEED:-1}
export GOFLAGS=-trimpath
cc=$(sh scripts/macos.sh) || { echo "skipped: no compiler for macOS"; exit 0; }
CC="'$cc'" CGO_ENABLED=1 GOOS=darwin GOARCH=arm64 "$GO" build -buildvcs=false -ldflags '-s -w -buildid=' -o "$work/monotron" .
python3 "$(dirname "$0")/macho.py" "$work/monotron"

# tables NAME TARGET RUNNER..: the case tables, built for TARGET
tables() {
  local name=$1 status=0
  printf '#!/bin/sh\nPYTHONPATH=%q exec python3 -m ziglang cc -target %s -fno-sanitize=undefined "$@"\n' "$PWD/.tools/macos/python" "$2" >"$work/cc-$name"
  chmod +x "$work/cc-$name"
  CC=$work/cc-$name CGO_ENABLED=1 GOOS=linux GOARCH=$name "$GO" test -c -vet=off -o "$work/$name.test" ./csrc/cpu
  (cd csrc/cpu && SHARE=$share SEED=$seed DRAWN=1 "${@:3}" "$work/$name.test" -test.v -test.run '^(TestValues|TestDrawn|TestRefusals)$' -test.timeout 60m) >"$work/$name.log" 2>&1 || status=$?
  [ "$status" = 0 ] || grep -vE '^ *(=== |--- (PASS|SKIP)|PASS$)' "$work/$name.log" | tail -20 || true
  count() { grep -cE "^        --- $2: $1/" "$work/$name.log" || true; }
  echo "clang, linux/$name: TestValues $(count TestValues PASS) cases passed, $(count TestValues FAIL) failed, $(count TestValues SKIP) skipped (SHARE=$share SEED=$seed); TestDrawn $(count TestDrawn PASS) passed, $(count TestDrawn FAIL) failed"
  [ "$status" = 0 ] && [ "$(count TestValues PASS)" -gt 0 ]
}
tables amd64 x86_64-linux-gnu.2.34
if command -v qemu-aarch64-static >/dev/null; then
  tables arm64 aarch64-linux-gnu.2.34 qemu-aarch64-static -L /usr/aarch64-linux-gnu
else
  echo "arm64 is left out: no qemu-aarch64-static (Debian: qemu-user-static libc6-dev-arm64-cross)"
fi
