# The CUDA kernels under checkers, on this CPU; called by make test-emu-race. First that
# the emulator finds kernels that are broken on purpose, by itself and under
# ThreadSanitizer; then recorded calls of every op, sound, under ThreadSanitizer and
# AddressSanitizer; then the cases with every access held against its type's alignment. CASES: which of the table's cases, as a pattern of their names.
set -eu
cd "$(dirname "$0")/.."
CASES=${CASES-(bf16|f32)_?.*(3x5|5x129|17x65|17_|1x17|2x5|3x65|129x1|17x65x63|65_tokens|33x128|rate_0.1|1001)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v g++ >/dev/null || { echo "skipped: no g++ here"; exit 0; }
kernels="g++ -std=c++17 -O1 -g1 -fno-strict-aliasing -Wno-unknown-pragmas -DMT_EMU"
library() { make --no-print-directory -s -f csrc/cuda/build.mk CHECK="$1" emu; }

library ""
$kernels -o "$work/checks" csrc/cuda/emu/checks.cpp bin/build/emu/emu-*.o
"$work/checks"
library thread
$kernels -fsanitize=thread -o "$work/races" csrc/cuda/emu/checks.cpp bin/build/emu-thread/emu-*.o
# Addresses must lie where the checker expects them.
plain=$(command -v setarch >/dev/null && echo "setarch $(uname -m) -R")
for name in sound total reuse; do
  found=no
  $plain "$work/races" race $name > "$work/report" 2>&1 || found=yes
  want=yes
  [ $name = sound ] && want=no
  if [ $found != $want ] || { [ $found = yes ] && ! grep -q 'data race' "$work/report"; }; then
    cat "$work/report"
    echo "ThreadSanitizer on the $name kernel: race found: $found, must be: $want"
    exit 1
  fi
  [ $found = no ] || grep -m1 -oE '(total|reuse)_kernel.* .*checks.cpp:[0-9]+' "$work/report" || true
  echo "ThreadSanitizer on the $name kernel: race found: $found, as it must be"
done

MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu.so" MONOTRON_RECORD="$work/calls" $GO test -count=1 -run "TestRecord/.*/$CASES" ./csrc/cuda/
ls -s "$work/calls"
for check in ${CHECKS-thread address}; do
  library $check
  $kernels -fsanitize=$check -o "$work/replay-$check" csrc/cuda/emu/replay.cpp "bin/libmt_cudaemu-$check.so" -Wl,-rpath,"$PWD/bin"
  echo "under the $check checker:"
  $plain "$work/replay-$check" "$work/calls"
done
# Where tensors lie decides which packs a kernel moves at once: no copies of the calls, the cases.
library alignment
echo "under the alignment checker:"
MONOTRON_CUDA_LIBRARY="$PWD/bin/libmt_cudaemu-alignment.so" $GO test -count=1 -run "TestValues/.*/$CASES" ./csrc/cuda/
