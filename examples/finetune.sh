# Train a tiny GPT to count, tune it to count down with an adapter, ask it, teach it to prefer counting down, and reward it for digits.
seq 1 400 | tr '\n' ' ' | sed 's/.*/{"text": "&"}/' >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 \
  --micro-batch-size 4 --global-batch-size 4 --train-iters 4 --lr 1e-2 --lr-decay-style constant --log-interval 4 \
  --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt
for i in $(seq 10 40); do echo "{\"prompt\": \"$i\", \"completion\": \" $((i - 1)) $((i - 2)) $((i - 3))\"}"; done >rows.jsonl
monotron inspect samples --labels --finetune-data rows.jsonl --load ckpt --seq-length 32
monotron finetune --model ckpt --data rows.jsonl --eval-data rows.jsonl --output tuned --batch-size 4 --epochs 6 --lr 1e-2 --patience 2
monotron generate --load tuned/model --prompt 30 --max-new-tokens 8
for i in $(seq 10 40); do echo "{\"prompt\": \"$i\", \"chosen\": \" $((i - 1)) $((i - 2))\", \"rejected\": \" $((i + 1)) $((i + 2))\"}"; done >pairs.jsonl
monotron inspect samples --labels --tuning dpo --finetune-data pairs.jsonl --load ckpt --seq-length 32
monotron finetune --model tuned/model --data pairs.jsonl --output preferred --tuning dpo --batch-size 4 --epochs 1 --lr 1e-2
for i in $(seq 10 40); do echo "{\"prompt\": \"$i\"}"; done >prompts.jsonl
monotron finetune --model tuned/model --data prompts.jsonl --output rewarded --tuning grpo --batch-size 16 --epochs 1 --lr 1e-2 \
  --reward-pattern '[0-9]' --max-completion-length 4
monotron convert --input rewarded/checkpoints --split-adapter split --to hf --output bare
cmp split/adapter_model.safetensors rewarded/adapter/adapter_model.safetensors
monotron diff bare tuned/model
monotron convert --input rewarded/checkpoints --to hf --output again
monotron diff again rewarded/model
monotron convert --input tuned/model --adapter split --adapter-only --to gguf --output adapter.gguf
monotron convert --input tuned/model --adapter split --adapter-over nf4 --to hf --output merged
