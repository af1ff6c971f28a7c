# Everything on a machine with a GPU, in under ten minutes, into a folder of at most eight files.
#   sh scripts/gpu.sh [test|bench|all|sanitizer] [folder]
# Runs from the repository, or from a copy of bin/gpu alone (make gpu-pack): no Go, no
# network. The folder is $OUT, else out-gpu. What is known stays known when it is killed: each
# part writes as it goes, has its own limit, and is left out when the time is up (LIMIT, 560
# seconds, which the limits of all parts come to at most). A part that fails hinders none, and
# an op's fault no other op: each has a process of its own. What a failing part wrote is in
# failed.txt. EMU=libmt_cudaemu.so runs it on the emulated library of the pack with tiny shapes,
# to test this script. PYTHON: one with torch, if python3 is not.
set -u
what=${1:-all}
here=$(cd "$(dirname "$0")" && pwd)
emulated=${EMU:-}

# The parts in their order, what each may take in seconds, and whom it writes for: first what
# tells most for least, last what only adds to it.
parts() {
  case $1 in
  test) echo machine smallest nccl resume cases cudnn golden graphs graphs-of-ops layouts sanitizer ;;
  sanitizer) echo sanitizer ;;
  bench) echo ladder step sides torch ops ops-cudnn ;;
  all) echo machine smallest nccl resume cases cudnn golden graphs graphs-of-ops ladder step sides torch layouts ops ops-cudnn sanitizer ;;
  esac
}
seconds() {
  case $1 in
  machine) echo 25 ;; smallest) echo 35 ;; nccl) echo 25 ;; resume) echo 30 ;; cases) echo 60 ;; cudnn) echo 25 ;; golden) echo 35 ;;
  graphs) echo 25 ;; graphs-of-ops) echo 20 ;; ladder) echo 55 ;; step) echo 25 ;; sides) echo 15 ;; torch) echo 60 ;; layouts) echo 30 ;; ops) echo 35 ;;
  ops-cudnn) echo 15 ;; sanitizer) echo 45 ;;
  esac
}
# Where a part's output is kept.
file() {
  case $1 in
  smallest | cases) echo cases.txt ;; step | sides) echo step.txt ;; ladder | torch | ops) echo "$1.txt" ;; *) echo log.txt ;;
  esac
}

tiny="--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 --global-batch-size 8"
[ -z "$emulated" ] || tiny="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4"
tiny="$tiny --mock-data --tokenizer-type NullTokenizer --vocab-size 255 --lr 1e-3 --bf16 --hidden-dropout 0.1 --attention-dropout 0.1 --eval-iters 0
  --log-interval 1 --seed 1 --device cuda"

# Each part is a function run_PART; it may write files to $work, whose texts are kept where it fails.

losses() { sed -nE 's/.*iteration +([0-9]+)\/.*lm loss: ([0-9.E+-]+).*/\1 \2/p' "$@"; }
trained() { # NAME, then flags: trains, and tells the end of what was said where that fails
  said=$work/$1.txt
  shift
  "$pack/monotron" pretrain_gpt $tiny "$@" > "$said" 2>&1 || { tail -5 "$said"; return 1; }
}

# What the machine is, and which libraries would be found.
run_machine() {
  uname -a
  ldd --version 2>&1 | head -1
  echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
  if command -v nvidia-smi > /dev/null; then timeout --foreground -k 2 10 nvidia-smi; fi
  "$pack/monotron" doctor
}

# each_op TEST SECONDS: the cases of every op by a process of its own, several side by side.
each_op() {
  tr ' ' '\n' < "$pack/ops.txt" | grep -E "^(${only:-.*})\$" > "$work/list"
  xargs -P "$beside" -I{} sh "$here/gpu.sh" -op "$1" "$2" {} < "$work/list"
  bad=
  while read -r op; do
    code=$(cat "$work/$op.code" 2> /dev/null || echo "not run")
    grep -hoE '^ +--- (PASS|FAIL|SKIP): ' "$work/$op.txt" 2> /dev/null | sort | uniq -c | tr -s ' \n' ' ' | sed "s/^/$op:/"
    [ "$code" = 0 ] && echo "ok" || { echo "FAILED ($code)"; bad="$bad $op"; }
    [ "$code" = 0 ] && rm -f "$work/$op.txt"
  done < "$work/list"
  echo "$1: $(wc -l < "$work/list") ops${bad:+, FAILED:$bad}"
  [ -z "$bad" ]
}
run_smallest() { each_op TestSmallest 12; }
run_cases() { each_op 'Test(Values|Drawn)' 60; }

# The machine's own NCCL, one rank: joining, every call, how long a call takes, closing, giving up.
run_nccl() {
  [ -z "$emulated" ] || { echo "left out: an emulated GPU has no NCCL"; return 0; }
  "$pack/nccl.test" -test.v -test.run OnGPU
}

# Two steps, save, two more; against four in one run: the same losses, digit for digit.
run_resume() {
  trained whole --train-iters 4 || return 1
  trained first --train-iters 4 --exit-interval 2 --save "$work/ckpt" --save-interval 2 || return 1
  trained second --train-iters 4 --save "$work/ckpt" --load "$work/ckpt" --save-interval 4 || return 1
  losses "$work/whole.txt" > "$work/a"
  losses "$work/first.txt" "$work/second.txt" > "$work/b"
  cat "$work/a"
  [ "$(wc -l < "$work/a")" = 4 ] && diff "$work/a" "$work/b" && echo "resumed: the same losses"
}

# With CUDA graphs: the same losses, digit for digit, and graphs there were.
run_graphs() {
  trained plain --train-iters 4 || return 1
  trained graphs --train-iters 4 --cuda-graph-impl local || return 1
  grep 'CUDA graphs' "$work/graphs.txt"
  losses "$work/plain.txt" > "$work/a"
  losses "$work/graphs.txt" > "$work/b"
  [ "$(wc -l < "$work/a")" = 4 ] && diff "$work/a" "$work/b" && grep -q '^CUDA graphs: ' "$work/graphs.txt" && echo "with graphs: the same losses"
}
run_graphs_of_ops() { "$pack/cuda.test" -test.short -test.run "TestGraph${emulated:+Runs|TestGraphThat}"; }

# Some hundred cases, of which each starts CUDA: several side by side.
run_golden() {
  cases="$pack/golden/*/case.json"
  [ -z "$emulated" ] || cases="$pack/golden/gpt2-tanh/case.json $pack/golden/qwen2/case.json"
  for f in $cases; do [ ! -e "$f" ] || dirname "$f"; done > "$work/list"
  [ -s "$work/list" ] || { echo "no golden case was packed"; return 0; }
  xargs -P "$beside" -I{} sh "$here/gpu.sh" -case {} < "$work/list"
  echo "golden: $(wc -l < "$work/list") cases, $(ls "$work"/*.txt 2> /dev/null | wc -l) FAILED"
  [ -z "$(ls "$work"/*.txt 2> /dev/null)" ]
}

run_cudnn() {
  [ -z "$emulated" ] || { echo "left out: an emulated GPU has no cuDNN"; return 0; }
  "$pack/cuda.test" -test.v -test.run 'TestFusedAttention$'
}

# Ranks on one GPU, in every kind of layout, have the losses, gradients and weights of one.
run_layouts() {
  chosen="--world-size 4 --stride 5"
  [ -z "$emulated" ] || chosen="--world-size 2 --shape gpt2 --steps 1 --stride 12"
  "$pack/monotron" verify --device cuda --all $chosen
}

run_ladder() {
  climb=
  [ -z "$emulated" ] || climb="--model shakespeare-char --micro-batch-size 1 --seq-length 4 --steps 1"
  "$pack/monotron" bench ladder $climb
}
run_step() {
  [ -z "$emulated" ] || { echo "left out: too long for an emulated GPU"; return 0; }
  "$pack/monotron" bench ops --device cuda --bf16 --model gpt2-124m --micro-batch-size 16 --seq-length 1024 --steps 20
}

# The vendor's libraries beside our kernels, product by product: what decides between them.
run_sides() { "$pack/cuda.test" -test.run '^TestSideBySide$'; }

# To import torch may take minutes from a cold disk.
run_torch() {
  timeout --foreground -k 2 25 "${PYTHON:-python3}" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2> "$work/import.txt" ||
    { echo "left out: ${PYTHON:-python3} has no torch that sees a GPU, or takes over 25 s to import it: $(tail -1 "$work/import.txt")"; return 0; }
  "${PYTHON:-python3}" -u "$pack/cuda-torch.py"
}

run_ops() {
  measured='.*' times=50x
  [ -z "$emulated" ] || measured='fill|add$' times=1x
  "$pack/cuda.test" -test.run '^$' -test.bench "BenchmarkOps/($measured)" -test.benchtime $times
}
run_ops_cudnn() {
  [ -z "$emulated" ] || { echo "left out: an emulated GPU has no cuDNN"; return 0; }
  MONOTRON_ATTENTION=fused "$pack/cuda.test" -test.run '^$' -test.bench BenchmarkOps/attention -test.benchtime 50x
}

# NVIDIA's checker lies beside nvcc, mostly not in the path. SANITIZER names it; an emulated GPU
# takes no other.
sanitizer() {
  [ -z "${SANITIZER:-}$emulated" ] || { echo "${SANITIZER:-}"; return; }
  for f in "$(command -v compute-sanitizer)" "$(dirname "$(command -v nvcc || echo /nowhere/nvcc)")/compute-sanitizer" /usr/local/cuda*/bin/compute-sanitizer \
    /usr/local/cuda*/compute-sanitizer/compute-sanitizer /opt/nvidia/cuda*/bin/compute-sanitizer; do
    [ ! -x "$f" ] || { echo "$f"; return; }
  done
}
# Accesses outside of tensors; then shared memory used without a barrier between, and barriers
# that not all threads reach. Each has a third of the time.
run_sanitizer() {
  checker=$(sanitizer) bad=
  [ -n "$checker" ] || { echo "left out: no compute-sanitizer in the path, nor beside nvcc"; return 0; }
  for tool in memcheck racecheck synccheck; do
    code=0
    timeout --foreground -k 2 13 "$checker" --tool "$tool" --error-exitcode 1 "$pack/cuda.test" -test.v \
      -test.run 'TestSmallest/(norm_forward|norm_backward|attention_forward|attention_backward|matmul|cross_entropy)' > "$work/$tool.txt" 2>&1 || code=$?
    echo "$tool: $(grep -c -- '--- PASS: TestSmallest/' "$work/$tool.txt") ops, $(grep -E '(ERROR|RACECHECK) SUMMARY' "$work/$tool.txt" | tail -1 | sed 's/^=* *//')"
    case $code in
    0) rm -f "$work/$tool.txt" ;;
    124 | 137) echo "$tool: not done after 13 s" ;;
    *) bad="$bad $tool" && echo "$tool: FAILED ($code)" ;;
    esac
  done
  [ -z "$bad" ]
}

case $what in
-run) # PART
  "run_$(echo "$2" | tr - _)"
  exit
  ;;
-op) # TEST SECONDS OP; in the foreground, so that it ends with its part
  most=$3
  [ -z "$emulated" ] || most=$((most * 10))
  timeout --foreground -k 5 "$most" "$pack/cuda.test" -test.v -test.run "^$2\$/^$4\$" > "$work/$4.txt" 2>&1
  echo $? > "$work/$4.code"
  exit 0 # the code says it; xargs goes on
  ;;
-case) # FOLDER; what a case says is kept where it fails
  name=$(basename "$2")
  if said=$("$pack/monotron" verify case --device cuda "$2" 2>&1); then echo "$name: $(echo "$said" | tail -1)"; else
    echo "$name: FAILED"
    echo "$said" > "$work/$name.txt"
  fi
  exit 0
  ;;
esac
plan=$(parts "$what")
[ -n "$plan" ] || { echo "sh scripts/gpu.sh [test|bench|all|sanitizer] [folder]" >&2; exit 2; }

archive=$here/pack.tar.gz
[ -e "$archive" ] || archive=$here/../bin/gpu/pack.tar.gz
[ -e "$archive" ] || { echo "bin/gpu is missing: make gpu-pack makes it" >&2; exit 66; }

limit=${LIMIT:-560} scale=1 sum=0
[ -z "$emulated" ] || limit=${LIMIT:-5600} scale=10
for name in $plan; do sum=$((sum + scale * $(seconds "$name"))); done
[ -n "${LIMIT:-}" ] || [ "$sum" -le "$limit" ] || { echo "the parts' limits come to $sum s, which is over $limit" >&2; exit 70; }

out=${2:-${OUT:-out-gpu}}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 74
(cd "$out" && rm -f summary.txt log.txt failed.txt cases.txt ladder.txt step.txt torch.txt ops.txt)
scratch=$(mktemp -d) || exit 74
trap 'rm -rf "$scratch"' EXIT
trap 'exit 143' TERM INT
export pack="$scratch/pack"
mkdir "$pack" && tar -C "$pack" -xzf "$archive" || { echo "$archive cannot be unpacked" >&2; exit 65; }

export MONOTRON_CUDA_LIBRARY="$pack/${emulated:-libmt_cuda.so}"
export beside="${BESIDE:-$(($(nproc) < 6 ? $(nproc) : 6))}" # processes on the GPU at a time
export only=
[ -z "$emulated" ] || export only='add|rope|fill|matmul'
python=$(command -v "${PYTHON:-python3}" || true)
# Where the system does not know them: the driver's library where containers put it, the
# toolkit's, and what torch brings (cuBLASLt, NCCL, cuDNN).
more=
for d in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/local/cuda/lib64; do
  [ ! -d "$d" ] || more="$more:$d"
done
if [ -n "$python" ]; then
  more="$more$(timeout -k 2 10 "$python" -c 'import glob, os, sys
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

# keep copies what a failing part wrote: the end of each text.
keep() { # NAME
  {
    echo "== $1"
    for f in "$work"/*.txt; do
      [ ! -s "$f" ] || { echo "-- $(basename "$f")"; tail -c 20000 "$f"; }
    done
  } >> "$out/failed.txt"
}

began=$(date +%s) failed=
for name in $plan; do
  most=$((scale * $(seconds "$name"))) left=$((limit - ($(date +%s) - began)))
  [ "$most" -le "$left" ] || most=$left
  if [ "$most" -lt 5 ]; then
    echo "$name: NOT RUN, the time is up" | tee -a "$out/summary.txt"
    failed="$failed $name"
    continue
  fi
  export work="$scratch/$name"
  mkdir -p "$work"
  start=$(date +%s) text=$out/$(file "$name") said=$scratch/said.txt
  timeout -k 10 "$most" sh "$here/gpu.sh" -run "$name" > "$said" 2>&1
  code=$?
  { echo "== $name"; cat "$said"; } >> "$text"
  case $code in
  0) verdict=ok ;;
  124 | 137) verdict="FAILED: not done after $most s" ;;
  *) verdict="FAILED ($code)" ;;
  esac
  case $(head -c 9 "$said") in "left out:") verdict=$(head -1 "$said") ;; esac
  [ $code = 0 ] || { failed="$failed $name"; keep "$name"; }
  echo "$name: $verdict, $(($(date +%s) - start)) s" | tee -a "$out/summary.txt"
  rm -rf "$work"
done
[ -z "$failed" ] || { echo "FAILED:$failed; see $out" >&2; exit 1; }
echo "all passed; results in $out"
