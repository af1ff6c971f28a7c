# Every golden tokenizer, preprocess, merge, bad-input, dataset, blend and sampler case.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/data/cases.json"
python3 "$shared/golden/data/run_cases.py" --bin bin
bin/monotron verify case "$shared/golden/data/cases.json" | tail -1
