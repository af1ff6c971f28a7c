# make crosscheck-tokenizers: random Unicode strings through the original
# tokenizers and through ours; COUNT strings a family, SEED. DATA is a folder
# with GPT-2's vocab.json and merges.txt as gpt2-vocab.json and gpt2-merges.txt,
# and a text to train on; without it a vocabulary of this repository's own text
# stands in. A second run finds the venv and the models of the first.
set -eu
cd "$(dirname "$0")/../.."
here=scripts/crosscheck-tokenizers
data=${DATA:-${MONOTRON_SHARED:-../shared}/data}
work=${CROSSCHECK_DIR:-.tools/crosscheck-tokenizers}
mkdir -p "$work/models"
if [ ! -x "$work/venv/bin/python" ]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3 protobuf || {
    rm -rf "$work/venv"
    echo "the original tokenizers could not be installed" >&2
    exit 69
  }
fi
python=$work/venv/bin/python
if [ -f "$data/gpt2-vocab.json" ]; then
  head -c 600000 "$data/wikitext2-valid.txt" >"$work/english.txt"
else
  data=$work/data
  cat docs/*.md README.md LICENSE "$($GO env GOROOT)"/doc/*.html "$($GO env GOROOT)"/src/net/http/*.go 2>/dev/null | head -c 600000 >"$work/english.txt"
  bin/monotron train_tokenizer --input "$work/english.txt" --vocab-size 8000 --output-dir "$data" 2>/dev/null
  mv "$data/vocab.json" "$data/gpt2-vocab.json"
  mv "$data/merges.txt" "$data/gpt2-merges.txt"
fi
[ -e "$work/models/t5/tokenizer.json" ] || {
  cat tokenizer/testdata/*.jsonl tokenizer/bpe/*.go tokenizer/hf/*.go >"$work/mixed.txt"
  "$python" $here/models.py "$work/models" "$data/gpt2-vocab.json" "$work/english.txt" "$work/mixed.txt"
}
"$python" $here/trainer.py bin/monotron "$work/english.txt" "$work/mixed.txt"
"$python" $here/compare.py bin/monotron "$work/models" "$data" "${COUNT:-100000}" "${SEED:-1}"
"$python" -W ignore $here/first.py bin/monotron "$work" "${TOKENIZERS:-150}" 200 "${SEED:-1}"
