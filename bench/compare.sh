# Speed and peak memory of one GPT-2 124M training step, ours and PyTorch's, in one
# run on one machine. PyTorch's python is $PYTHON (default python3):
#
#   python3 -m venv .tools/venv && .tools/venv/bin/pip install torch
#   PYTHON=.tools/venv/bin/python sh bench/compare.sh
#
# Compiled PyTorch is given 8 minutes a dtype; STEPS is how many steps count (5).
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
steps=${STEPS:-5}
"$python" -c 'import torch' 2>/dev/null || { echo "compare.sh: $python has no torch; see the head of bench/compare.sh" >&2; exit 66; }
[ -x bin/monotron ] || { echo "compare.sh: no bin/monotron; run make" >&2; exit 66; }

row() { # name; reads one JSON object
  "$python" -c '
import json, sys
r = json.load(sys.stdin)
share = "%.2f of the GEMM peak" % r["fraction_of_gemm_peak"] if "fraction_of_gemm_peak" in r else ""
print("%-24s %8.1f tokens/s %8.2f GiB %s" % (sys.argv[1], r["tokens_per_second"], r["peak_memory_bytes"] / 2**30, share))' "$1"
}

echo "GPT-2 124M, 4 x 512 tokens a step: speed of the median step, peak of resident memory"
for dtype in f32 bf16; do
  flag=
  [ $dtype = f32 ] || flag=--$dtype
  bin/monotron bench --model gpt2-124m --micro-batch-size 4 --seq-length 512 --steps "$steps" $flag --json 2>/dev/null | row "monotron $dtype"
  "$python" bench/torch_gpt2.py --dtype $dtype --steps "$steps" | row "torch $dtype"
  timeout 480 "$python" bench/torch_gpt2.py --dtype $dtype --steps "$steps" --compile 2>/dev/null >/tmp/compare.$$ &&
    row "torch $dtype compiled" </tmp/compare.$$ || echo "torch $dtype compiled: not done after 8 minutes"
  rm -f /tmp/compare.$$
done
