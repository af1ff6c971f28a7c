# make crosscheck-tokenizers: random Unicode strings through the original
# tokenizers and through ours; COUNT strings a family, SEED. DATA is a folder
# with GPT-2's vocab.json and merges.txt as gpt2-vocab.json and gpt2-merges.txt,
# and texts to train on. A second run finds the venv and the models of the first.
set -eu
cd "$(dirname "$0")/../.."
here=scripts/crosscheck-tokenizers
data=${DATA:-${MONOTRON_SHARED:-../shared}/data}
work=${CROSSCHECK_DIR:-.tools/crosscheck-tokenizers}
[ -f "$data/gpt2-vocab.json" ] || { echo "no $data/gpt2-vocab.json; set DATA" >&2; exit 66; }
mkdir -p "$work/models"
if [ ! -x "$work/venv/bin/python" ]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3 protobuf
fi
python=$work/venv/bin/python
[ -e "$work/models/t5/tokenizer.json" ] || {
  head -c 600000 "$data/wikitext2-valid.txt" >"$work/english.txt"
  cat tokenizer/testdata/*.jsonl tokenizer/bpe/*.go tokenizer/hf/*.go >"$work/mixed.txt"
  "$python" $here/models.py "$work/models" "$data/gpt2-vocab.json" "$work/english.txt" "$work/mixed.txt"
}
"$python" $here/trainer.py bin/monotron "$work/english.txt" "$work/mixed.txt"
"$python" $here/compare.py bin/monotron "$work/models" "$data" "${COUNT:-100000}" "${SEED:-1}"
