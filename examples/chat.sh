# Train a tiny GPT to count, and let it continue two lines; then talk with it by a chat template.
seq 1 400 | tr '\n' ' ' | sed 's/.*/{"text": "&"}/' >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64 \
  --micro-batch-size 4 --global-batch-size 4 --train-iters 4 --lr 1e-2 --lr-decay-style constant \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt
printf '1 2 3 4\n5 6 7\n/reset\n10 11\n' | monotron chat ckpt --temperature 0 --max-new-tokens 4 >answers
test "$(wc -l <answers)" -ge 3
echo '{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}' >template.jinja
printf 'What follows 30?\n/system Count.\nAnd 40?\n' | monotron chat ckpt --chat-template template.jinja --system "You count." --seed 1 --max-new-tokens 4
