# Every golden tokenizer, preprocess, merge, bad-input, dataset, blend and sampler case.
set -eu
cd "$(dirname "$0")/../.."
shared=${MONOTRON_SHARED:-$(cd .. && pwd)/shared}
if [ ! -f "$shared/golden/data/cases.json" ]; then
  echo "skipped: $shared/golden/data is not there (MONOTRON_SHARED names another place)"
  exit 0
fi
python3 "$shared/golden/data/run_cases.py" --bin bin
bin/monotron verify case "$shared/golden/data/cases.json" | tail -1
