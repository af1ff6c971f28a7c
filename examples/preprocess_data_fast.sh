# As preprocess_data; an empty document is kept, as an empty sequence.
printf '{"text": "one"}\n{"text": ""}\n' >sample.jsonl
monotron preprocess_data_fast --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer
monotron inspect dataset sample_text_document
