#!/bin/bash
# Claim: the `openai` package calls tools of a server whose model has never seen one: 4 chat templates of other forms, 60 requests of
# random tools each, every call that was asked for valid by the `jsonschema` package.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
peer openai jsonschema
templates=$shared/golden/chat
need "$templates/tokenizer.json"

# A model of 4,096 positions with the tokenizer of golden/chat.
mkdir "$work/tokenizer"
cp "$templates/tokenizer.json" "$work/tokenizer"
echo '{"bos_token": "<s>", "eos_token": "</s>"}' >"$work/tokenizer/tokenizer_config.json"
of=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$work/tokenizer/tokenizer.json")
for _ in $(seq 50); do echo '{"text": "hello world, a small text for a model"}'; done >"$work/text.jsonl"
bin/preprocess_data --input "$work/text.jsonl" --output-prefix "$work/text" "${of[@]}" --workers 1 2>"$work/notes" || { cat "$work/notes"; exit 1; }
bin/pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 512 --max-position-embeddings 4096 --position-embedding-type rope \
  --micro-batch-size 1 --global-batch-size 1 --lr 1e-3 --train-iters 1 --eval-iters 0 --data-path "$work/text_text_document" --split 1,0,0 "${of[@]}" \
  --save "$work/model" >"$work/notes" 2>&1 || { cat "$work/notes"; exit 1; }

for template in 05-llama31-tools 07-mistral-v3-tools 11-qwen25-tools 21-granite; do
  serve_model "$work/model" bin/monotron serve --chat-template "$templates/templates/$template.jinja"
  echo "$template:"
  "$python" "$(dirname "$0")/tools.py" "$url/v1" "${COUNT:-60}" "${SEED:-1}" || { echo "FAILED"; exit 1; }
  nothing_left
done
