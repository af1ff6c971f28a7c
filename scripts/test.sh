# Called by make test: what a change must pass, with the time of each part, what was
# skipped and why. Exit 1 when any part failed; every part runs all the same.
set -u
cd "$(dirname "$0")/.." || exit 1
failed=
skipped=

part() { # title, command...
  title=$1
  shift
  start=$(date +%s)
  if "$@" </dev/null; then verdict=ok; else verdict=FAILED; failed="$failed, $title"; fi
  echo "== $title: $verdict, $(($(date +%s) - start)) s"
}
skip() { skipped="$skipped
   $1"; }

# Tests make garbage of small heaps: at Go's own percentage the collector takes half of their processor time.
export GOGC=${GOGC:-400} GOMEMLIMIT=${GOMEMLIMIT:-2GiB}
# Of long tables each kind once, and what SEED draws; the tests say how much that is.
export SHARE=${SHARE:-8} SEED=${SEED:-1}

began=$(date +%s)
make --no-print-directory deps
part "build" make --no-print-directory build
make --no-print-directory gloo || skip "Gloo: its library cannot be built here"
if make --no-print-directory "$STATICCHECK" >/dev/null 2>&1 || [ -n "${CI:-}" ]; then
  part "linters" make --no-print-directory lint
else
  skip "staticcheck: could not be fetched (no module proxy reached); only go vet ran"
  part "vet" $GO vet ./...
fi
# What uses one core, or one after another, runs beside the Go tests, some of which wait.
aside=$(mktemp)
compiler=$(command -v g++) || skip "CUDA kernels on this CPU: no g++ here"
{
  failed=
  if [ -n "$compiler" ]; then part "CUDA kernels on this CPU" env QUICK=1 make --no-print-directory test-emu; fi
  part "tests of what differs without cgo" sh scripts/nocgo.sh
  echo "$failed" >"$aside.failed"
} >"$aside" 2>&1 &
# What takes longest begins first, so that nothing is left to run alone; some packages wait for clocks and for
# processes, so that there are more at a time than cores. lint has vetted all.
part "tests" $GO run ./scripts/testreport -vet=off -p $(($(nproc) + 2)) -timeout 30m ./tests ./tools/verify/layouts ./mpu/bootstrap/rendezvous ./megatron/pretrain ./csrc/cpu ./...
wait $!
cat "$aside"
failed="$failed$(cat "$aside.failed" || echo ", what runs beside the tests")"
rm -f "$aside" "$aside.failed"
if [ -n "${CI:-}" ]; then
  part "CUDA kernels by nvcc, for one architecture" make --no-print-directory cuda-check
  part "the program compiles for other platforms" make --no-print-directory platforms
  part "tokenizers beside the originals, 500 strings a family" env COUNT=500 make --no-print-directory crosscheck-tokenizers
else
  skip "tokenizers beside the originals: make crosscheck-tokenizers, fetches 10 MB"
  skip "compiling CUDA kernels by nvcc: make cuda-check, a minute or two, fetches 105 MB"
  skip "compiling for other platforms: make platforms"
fi
skip "packages that are the same without cgo: make nocgo"
skip "CUDA kernels for every architecture, whole tables of layouts, faults and kills: make proofs"
[ -e /dev/nvidia0 ] || skip "GPU tests: no GPU here (make test-gpu, make bench-gpu)"
echo "== skipped besides the tests listed above:${skipped:- none}"
echo "== $(($(date +%s) - began)) s in all"
if [ -n "$failed" ]; then
  echo "FAILED: ${failed#, }"
  exit 1
fi
echo "all passed"
