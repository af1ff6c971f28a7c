# Spoil one value of step 4; the step is kept, and runs again from what was kept.
for i in $(seq 1 60); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 60)))\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
  --micro-batch-size 1 --global-batch-size 4 --train-iters 10 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 \
  --run-folder run --inject nan:layer=1:step=4 && { echo "the injected fault did not end the run"; exit 1; }
monotron replay run/nonfinite_0000004
