# Pairs both ways: Megatron's IndexedDataset reads ours, ours reads Megatron's, of every
# token type; megatron-core comes from Python's index (PYTHON: one that has it and torch).
# Then DATASETS (200) random datasets and blends, every index array and samples of each split.
# Then COUNT (100000) random strings through the originals of every tokenizer family.
. "$(dirname "$0")/../common.sh"
python=${PYTHON:-.tools/megatron-core/bin/python}
if [ ! -x "$python" ] && ! command -v "$python" >/dev/null; then
  python3 -m venv .tools/megatron-core
  .tools/megatron-core/bin/pip install -q --disable-pip-version-check numpy torch megatron-core || { echo "skipped: megatron-core could not be installed"; exit 0; }
fi
"$python" tests/proofs/data/pairs.py bin "$work"
"$python" -W ignore tests/proofs/data/samples.py bin "$work" "${DATASETS:-200}" "${SEED:-1}" 2>/dev/null
[ -n "${PAIRS_ONLY:-}" ] || make --no-print-directory crosscheck-tokenizers
