# Pairs both ways: Megatron's IndexedDataset reads ours, ours reads Megatron's, of every
# token type; megatron-core comes from Python's index (PYTHON: one that has it and torch).
# Then DATASETS (200) random datasets and blends, every index array and samples of each split.
# Then COUNT (100000) random strings through the originals of every tokenizer family.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-.tools/shows-c/bin/python}
if [ ! -x "$python" ] && ! command -v "$python" >/dev/null; then
  python3 -m venv .tools/shows-c
  .tools/shows-c/bin/pip install -q --disable-pip-version-check numpy torch megatron-core || { echo "skipped: megatron-core could not be installed"; exit 0; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" scripts/shows-c/pairs.py bin "$work"
"$python" -W ignore scripts/shows-c/samples.py bin "$work" "${DATASETS:-200}" "${SEED:-1}" 2>/dev/null
[ -n "${PAIRS_ONLY:-}" ] || make --no-print-directory crosscheck-tokenizers
