# What is in a token file pair, and the first training sample as text.
for i in 1 2 3 4; do echo "{\"text\": \"document number $i has a few words in it\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
monotron inspect dataset sample_text_document
monotron inspect samples --data-path sample_text_document --split 100,0,0 --seq-length 8 --text --tokenizer-type GPT2BPETokenizer
# Which ranks read which samples: two data-parallel groups of two tensor-parallel ranks.
monotron inspect samples --data-path sample_text_document --split 100,0,0 --seq-length 8 --tokenizer-type GPT2BPETokenizer \
    --ranks --world-size 4 --tensor-model-parallel-size 2
