# Everything on a machine with a GPU, in under 9 minutes, into a folder of results.
#   sh scripts/gpu.sh [test|bench|all] [folder]
# Runs from the repository or from bin/gpu alone (make gpu-pack): no Go, no network. EMU=1
# runs what can be run of it on the emulated library, to test this script.
set -u
what=${1:-all}
here=$(cd "$(dirname "$0")" && pwd)
pack=$here
[ -e "$pack/cuda.test" ] || pack=$here/../bin/gpu
[ -e "$pack/cuda.test" ] || { echo "bin/gpu is missing: make gpu-pack makes it" >&2; exit 66; }
export MONOTRON_CUDA_LIBRARY="$pack/libmt_cuda.so"
[ -z "${EMU:-}" ] || export MONOTRON_CUDA_LIBRARY="$here/../bin/libmt_cudaemu.so"
python=$(command -v python3 || true)
# torch brings cuBLASLt: it is found beside torch where the system has none.
if [ -n "$python" ]; then
  blas=$($python -c 'import glob, os, sys
for d in sys.path:
    for f in glob.glob(os.path.join(d, "nvidia", "*", "lib", "libcublasLt.so.1*")):
        print(os.path.dirname(f)); raise SystemExit' 2>/dev/null)
  [ -z "$blas" ] || export LD_LIBRARY_PATH="$blas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
failed=

# step runs a command, or one of the functions below, for so many seconds at most.
step() { # name, seconds at most, command...
  name=$1 most=$2
  shift 2
  start=$(date +%s)
  if timeout "$most" sh "$here/gpu.sh" -run "$@" > "$out/$name.txt" 2>&1; then verdict=ok; else verdict="FAILED ($?)"; failed="$failed $name"; fi
  echo "$name: $verdict, $(($(date +%s) - start)) s" | tee -a "$out/summary.txt"
}

tiny="--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 --global-batch-size 8
  --mock-data --tokenizer-type NullTokenizer --vocab-size 255 --lr 1e-3 --bf16 --hidden-dropout 0.1 --attention-dropout 0.1 --eval-iters 0 --log-interval 1 --seed 1"

losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([0-9.E+-]+).*/\1 \2/p' "$1"; }

# Two steps, save, two more; against four in one run: the same losses, digit for digit.
resume() {
  d=$(mktemp -d) || return 1
  set -- $tiny --device cuda
  "$pack/monotron" pretrain_gpt "$@" --train-iters 4 > "$d/whole" || return 1
  "$pack/monotron" pretrain_gpt "$@" --train-iters 4 --exit-interval 2 --save "$d/ckpt" --save-interval 2 > "$d/first" || return 1
  "$pack/monotron" pretrain_gpt "$@" --train-iters 4 --save "$d/ckpt" --load "$d/ckpt" --save-interval 4 > "$d/second" || return 1
  losses "$d/whole" > "$d/a"
  { losses "$d/first"; losses "$d/second"; } > "$d/b"
  cat "$d/a"
  [ "$(wc -l < "$d/a")" = 4 ] && diff "$d/a" "$d/b" && echo "resumed: the same losses"
}

golden() {
  found=
  for case in "$pack"/golden/*/; do
    [ -d "$case" ] || continue
    found=yes
    "$pack/monotron" verify case --device cuda "$case" || return 1
  done
  [ -n "$found" ] || echo "no golden case was packed"
}

tests() {
  step doctor 60 "$pack/monotron" doctor
  cases='.*'
  [ -z "${EMU:-}" ] || cases='add|rope|fill'
  step cases 240 "$pack/cuda.test" -test.v -test.run "TestValues/($cases)"
  step resume 120 resume
  step golden 120 golden
  if command -v compute-sanitizer >/dev/null && [ -z "${EMU:-}" ]; then
    step sanitizer 120 compute-sanitizer --tool memcheck "$pack/cuda.test" -test.run 'TestValues/(norm|attention|matmul)_?.*/bf16_(17|1x17|2x5|3x5).*'
  fi
}

benches() {
  ops='.*'
  [ -z "${EMU:-}" ] || ops='fill|add$'
  step ops 150 "$pack/cuda.test" -test.run '^$' -test.bench "BenchmarkOps/($ops)" -test.benchtime 50x
  step step 120 "$pack/monotron" bench --device cuda --steps 10
  if [ -n "$python" ] && [ -z "${EMU:-}" ]; then step torch 120 "$python" "$pack/cuda-torch.py"; fi
}

if [ "$what" = -run ]; then
  shift
  "$@"
  exit
fi
out=${2:-out-gpu}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 74
: > "$out/summary.txt"
case $what in
test) tests ;;
bench) benches ;;
all) tests; benches ;;
*) echo "sh scripts/gpu.sh [test|bench|all] [folder]" >&2; exit 2 ;;
esac
if command -v nvidia-smi >/dev/null; then nvidia-smi > "$out/nvidia-smi.txt" 2>&1; fi
grep -hoE '^ +--- (PASS|FAIL|SKIP): TestValues/[a-z_]+ ' "$out/cases.txt" 2>/dev/null | sort | uniq -c >> "$out/summary.txt"
[ -z "$failed" ] || { echo "FAILED:$failed; see $out" >&2; exit 1; }
echo "all passed; results in $out"
