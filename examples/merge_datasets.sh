# Two token file pairs become one.
mkdir shards
for i in 1 2; do
  echo "{\"text\": \"shard $i\"}" >"$i.jsonl"
  preprocess_data --input "$i.jsonl" --output-prefix "shards/$i" --tokenizer-type GPT2BPETokenizer --append-eod
done
monotron merge_datasets --input shards --output-prefix whole
test -s whole.bin && test -s whole.idx
