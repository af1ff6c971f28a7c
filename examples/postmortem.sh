# Kill one of four ranks on purpose; the records that it and its peers leave tell where.
for i in $(seq 1 60); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 60)))\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --world-size 4 --tensor-model-parallel-size 2 --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 \
  --max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 4 --train-iters 10 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 \
  --run-folder run --inject kill:rank=3:step=5:phase=backward && { echo "the injected fault did not end the run"; exit 1; }
monotron postmortem run --trace run.json
