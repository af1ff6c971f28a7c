# Everything on a machine with a GPU, in under 9 minutes, into a folder of a few files.
#   sh scripts/gpu.sh [test|bench|all] [folder]
# Runs from the repository, or from a copy of bin/gpu alone (make gpu-pack): no Go, no
# network. What is known stays known when it is killed: each part writes as it goes, has its
# own limit, and is left out when the time is up (LIMIT, 530 seconds); a part that fails
# hinders none. EMU=libmt_cudaemu.so runs it on the emulated library with tiny shapes, to
# test this script. PYTHON: one with torch, if python3 is not.
set -u
what=${1:-all}
here=$(cd "$(dirname "$0")" && pwd)
pack=$here
[ -e "$pack/cuda.test" ] || pack=$here/../bin/gpu
[ -e "$pack/cuda.test" ] || { echo "bin/gpu is missing: make gpu-pack makes it" >&2; exit 66; }
emulated=${EMU:-}

tiny="--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 --global-batch-size 8"
[ -z "$emulated" ] || tiny="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4"
tiny="$tiny --mock-data --tokenizer-type NullTokenizer --vocab-size 255 --lr 1e-3 --bf16 --hidden-dropout 0.1 --attention-dropout 0.1 --eval-iters 0
  --log-interval 1 --seed 1 --device cuda"

losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([0-9.E+-]+).*/\1 \2/p' "$@"; }
trained() { # FILE, then flags: trains, and tells the end of what was said where that fails
  said=$1
  shift
  "$pack/monotron" pretrain_gpt $tiny "$@" > "$said" 2>&1 || { tail -5 "$said"; return 1; }
}

# Two steps, save, two more; against four in one run: the same losses, digit for digit.
resume() {
  d=$(mktemp -d) || return 1
  trained "$d/whole" --train-iters 4 || return 1
  trained "$d/first" --train-iters 4 --exit-interval 2 --save "$d/ckpt" --save-interval 2 || return 1
  trained "$d/second" --train-iters 4 --save "$d/ckpt" --load "$d/ckpt" --save-interval 4 || return 1
  losses "$d/whole" > "$d/a"
  losses "$d/first" "$d/second" > "$d/b"
  cat "$d/a"
  [ "$(wc -l < "$d/a")" = 4 ] && diff "$d/a" "$d/b" && echo "resumed: the same losses" && rm -r "$d"
}

# With CUDA graphs: the same losses, digit for digit, and graphs there were.
graphs() {
  d=$(mktemp -d) || return 1
  trained "$d/plain" --train-iters 4 || return 1
  trained "$d/graphs" --train-iters 4 --cuda-graph-impl local || return 1
  grep 'CUDA graphs' "$d/graphs"
  losses "$d/plain" > "$d/a"
  losses "$d/graphs" > "$d/b"
  [ "$(wc -l < "$d/a")" = 4 ] && diff "$d/a" "$d/b" && grep -q '^CUDA graphs: ' "$d/graphs" && echo "with graphs: the same losses" && rm -r "$d"
}

golden() {
  found= bad=0
  cases="$pack/golden/*"
  [ -z "$emulated" ] || cases=$pack/golden/gpt2-tanh
  for case in $cases; do
    [ -e "$case/case.json" ] || continue
    found=yes
    said=$("$pack/monotron" verify case --device cuda "$case" 2>&1) || { bad=1; echo "$said"; }
    echo "$(basename "$case"): $(echo "$said" | tail -1)"
  done
  [ -n "$found" ] || echo "no golden case was packed"
  return $bad
}

# Ranks on one GPU, in every kind of layout, have the losses, gradients and weights of one.
layouts() {
  chosen="--world-size 4 --stride 5"
  [ -z "$emulated" ] || chosen="--world-size 2 --shape gpt2 --steps 1 --stride 12"
  "$pack/monotron" verify --device cuda --all $chosen
}

# What the machine is, and which libraries would be found.
machine() {
  uname -a
  ldd --version 2>&1 | head -1
  echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
  if command -v nvidia-smi > /dev/null; then nvidia-smi; fi
  "$pack/monotron" doctor
}

if [ "$what" = -run ]; then
  shift
  "$@"
  exit
fi

export MONOTRON_CUDA_LIBRARY="${emulated:-$pack/libmt_cuda.so}"
python=$(command -v "${PYTHON:-python3}" || true)
# Where the system does not know them: the driver's library where containers put it, the
# toolkit's, and what torch brings (cuBLASLt, NCCL, cuDNN).
more=
for d in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/local/cuda/lib64; do
  [ ! -d "$d" ] || more="$more:$d"
done
if [ -n "$python" ]; then
  more="$more$("$python" -c 'import glob, os, sys
found = []
for d in sys.path:
    for name in ("cublasLt", "nccl", "cudnn"):
        for f in glob.glob(os.path.join(d, "nvidia", "*", "lib", "lib" + name + ".so.*")):
            if os.path.dirname(f) not in found:
                found.append(os.path.dirname(f))
print("".join(":" + d for d in found))' 2>/dev/null)"
fi
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}$more"
LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:}
[ -z "$LD_LIBRARY_PATH" ] || export LD_LIBRARY_PATH

out=${2:-out-gpu}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 74
rm -f "$out/summary.txt" "$out/log.txt"
began=$(date +%s) limit=${LIMIT:-530}
[ -z "$emulated" ] || limit=${LIMIT:-3600}
failed=

# part runs a command, or one of the functions above, for so many seconds at most.
part() { # NAME, SECONDS, FILE of what it says, command...
  name=$1 most=$2 file=$out/$3
  shift 3
  [ "$file" = "$out/log.txt" ] || rm -f "$file"
  [ -z "$emulated" ] || most=$((most * 10))
  left=$((limit - ($(date +%s) - began)))
  [ "$most" -le "$left" ] || most=$left
  if [ "$most" -lt 5 ]; then
    echo "$name: NOT RUN, the time is up" | tee -a "$out/summary.txt"
    failed="$failed $name"
    return
  fi
  start=$(date +%s)
  echo "== $name" >> "$file"
  timeout -k 10 "$most" sh "$here/gpu.sh" -run "$@" >> "$file" 2>&1
  code=$?
  case $code in
  0) verdict=ok ;;
  124 | 137) verdict="FAILED: not done after $most s" ;;
  *) verdict="FAILED ($code)" ;;
  esac
  [ "$verdict" = ok ] || failed="$failed $name"
  echo "$name: $verdict, $(($(date +%s) - start)) s" | tee -a "$out/summary.txt"
}

# Cases in parts of the whole table; emulated ones are slow.
cases='.*' ops='.*' times=50x sanitized='(norm_forward|norm_backward|attention_forward|attention_backward|matmul)/bf16.*(_17|1x17|2x5|3x5)'
climb= shape="--model gpt2-124m --micro-batch-size 16 --seq-length 1024 --steps 20"
[ -z "$emulated" ] || cases='add|rope|fill' ops='fill|add$' times=1x climb="--model shakespeare-char --micro-batch-size 1 --seq-length 4 --steps 1"

tests() {
  part machine 40 log.txt machine
  part resume 60 log.txt resume
  part graphs 60 log.txt graphs
  part cases 150 cases.txt "$pack/cuda.test" -test.v -test.run "TestValues/^($cases)\$"
  grep -hoE '^ +--- (PASS|FAIL|SKIP): TestValues/[a-z_]+ ' "$out/cases.txt" | sort | uniq -c >> "$out/summary.txt"
}

more_tests() {
  part graphs-of-ops 60 log.txt "$pack/cuda.test" -test.short -test.run "TestGraph${emulated:+Runs|TestGraphThat}"
  part golden 90 log.txt golden
  part layouts 90 log.txt layouts
  [ -n "$emulated" ] || part cudnn 60 log.txt "$pack/cuda.test" -test.v -test.run 'TestFusedAttention$'
  if command -v compute-sanitizer > /dev/null && [ -z "$emulated" ]; then
    part sanitizer 60 log.txt compute-sanitizer --tool memcheck --error-exitcode 1 "$pack/cuda.test" -test.v -test.run "TestValues/$sanitized"
  fi
}

benches() {
  part ladder 120 ladder.txt "$pack/monotron" bench ladder $climb
  [ -n "$emulated" ] || part step 60 step.txt "$pack/monotron" bench ops --device cuda --bf16 $shape
  if [ -n "$python" ] && "$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2> /dev/null; then
    part torch 130 torch.txt "$python" -u "$pack/cuda-torch.py"
  else
    echo "torch: left out, ${python:-python3} has none that sees a GPU" | tee -a "$out/summary.txt"
  fi
  part ops 90 ops.txt "$pack/cuda.test" -test.run '^$' -test.bench "BenchmarkOps/($ops)" -test.benchtime $times
  [ -n "$emulated" ] || part ops-cudnn 40 log.txt env MONOTRON_ATTENTION=fused "$pack/cuda.test" -test.run '^$' -test.bench BenchmarkOps/attention -test.benchtime $times
}

case $what in
test) tests; more_tests ;;
bench) benches ;;
all) tests; benches; more_tests ;;
*) echo "sh scripts/gpu.sh [test|bench|all] [folder]" >&2; exit 2 ;;
esac
[ -z "$failed" ] || { echo "FAILED:$failed; see $out" >&2; exit 1; }
echo "all passed; results in $out"
