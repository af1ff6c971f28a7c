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

began=$(date +%s)
make --no-print-directory deps
part "build" make --no-print-directory build
make --no-print-directory gloo || skip "Gloo: its library cannot be built here"
if make --no-print-directory "$STATICCHECK" >/dev/null 2>&1 || [ -n "${CI:-}" ]; then
  part "gofmt, vet, staticcheck" make --no-print-directory lint
else
  skip "staticcheck: could not be fetched (no module proxy reached); only go vet ran"
  part "vet" $GO vet ./...
fi
part "tests" $GO run ./scripts/testreport -timeout 30m ./...
part "tests without cgo" env CGO_ENABLED=0 $GO run ./scripts/testreport -short -timeout 30m ./...
if command -v g++ >/dev/null; then
  part "CUDA kernels on this CPU" env QUICK=1 make --no-print-directory test-emu
else
  skip "CUDA kernels on this CPU: no g++ here"
fi
if [ -n "${CI:-}" ]; then
  part "CUDA kernels by nvcc, registers and spills" make --no-print-directory cuda-kernels
  part "tokenizers beside the originals, 500 strings a family" env COUNT=500 make --no-print-directory crosscheck-tokenizers
else
  skip "tokenizers beside the originals: make crosscheck-tokenizers, fetches 10 MB"
  skip "compiling CUDA kernels by nvcc: make cuda-kernels, some minutes, fetches 105 MB"
fi
[ -e /dev/nvidia0 ] || skip "GPU tests: no GPU here (make test-gpu, make bench-gpu)"
echo "== skipped besides the tests listed above:${skipped:- none}"
echo "== $(($(date +%s) - began)) s in all"
if [ -n "$failed" ]; then
  echo "FAILED: ${failed#, }"
  exit 1
fi
echo "all passed"
