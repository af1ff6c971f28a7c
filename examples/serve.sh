# Train a tiny GPT to count, serve it, ask it as any client would, and measure it.
for i in $(seq 1 60); do echo "{\"text\": \"$(seq -s ' ' "$i" $((i + 60)))\"}"; done >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
  --micro-batch-size 4 --global-batch-size 4 --train-iters 10 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt --save-interval 10
monotron serve --load ckpt --port 0 2>serve.notes &
server=$!
trap 'kill $server 2>/dev/null || cat serve.notes' EXIT
until grep -q '^ready' serve.notes; do kill -0 $server || exit 1; sleep 0.1; done
url=$(sed -n 's/.*\(http:[^ ]*\)\/,.*/\1/p' serve.notes)
curl -sf "$url/health"
curl -sf "$url/v1/completions" -d '{"prompt": "1 2 3 4", "max_tokens": 8, "temperature": 0, "logprobs": 1}'
curl -sfN "$url/v1/completions" -d '{"prompt": "1 2 3 4", "max_tokens": 8, "temperature": 0, "stream": true}'
monotron bench serve --base-url "$url" --num-requests 5 --request-rate 20 --prompt-words 4 --max-tokens 4
kill -TERM $server
wait $server
