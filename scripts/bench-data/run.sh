# Called by make bench-data: the data path against its peers in one run, as ratios.
# Peers come from Python's index into a venv of their own (.tools/bench-data);
# Megatron's own tools run where MEGATRON_DIR names a checkout of it, and
# MEGATRON_PYTHON a Python with what it needs.
set -eu
cd "$(dirname "$0")/../.."
venv=.tools/bench-data
if [ ! -x $venv/bin/python ]; then
  python3 -m venv $venv
fi
$venv/bin/pip install -q --disable-pip-version-check numpy awkward gigatoken || echo "gigatoken could not be installed: its row is missing"
$venv/bin/pip install -q --disable-pip-version-check --no-deps megatron-core || echo "megatron-core could not be installed: its rows are missing"
text=${BENCH_TEXT:-.tools/bench-data/go.jsonl}
[ -f "$text" ] || $venv/bin/python scripts/bench-data/corpus.py "$($GO env GOROOT)/src" "$text"
ranks=$($GO list -m -f '{{.Dir}}' github.com/pkoukk/tiktoken-go-loader)/assets/r50k_base.tiktoken
$GO build -o $venv/encode ./scripts/bench-data/encode
data=${DATA:-${MONOTRON_SHARED:-../shared}/data}
[ ! -f "$data/gpt2-vocab.json" ] || set -- --vocabulary "$data" "$@"
exec $venv/bin/python scripts/bench-data/ratios.py --bin bin --text "$text" --ranks "$ranks" --encode $venv/encode "$@"
