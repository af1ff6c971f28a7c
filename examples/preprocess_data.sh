# JSON lines to a token file pair: sample_text_document.bin and .idx.
cat >sample.jsonl <<'TEXT'
{"text": "The quick brown fox jumps over the lazy dog."}
{"text": "Pack my box with five dozen liquor jugs."}
TEXT
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod --workers 2
test -s sample_text_document.bin && test -s sample_text_document.idx
