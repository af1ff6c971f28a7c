# Two token file pairs become one.
mkdir parts
for i in 1 2; do
  echo "{\"text\": \"part $i\"}" >"$i.jsonl"
  preprocess_data --input "$i.jsonl" --output-prefix "parts/$i" --tokenizer-type GPT2BPETokenizer --append-eod
done
monotron merge_datasets --input parts --output-prefix whole
test -s whole.bin && test -s whole.idx
