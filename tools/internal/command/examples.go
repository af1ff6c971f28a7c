package command

// examples are command lines that --help shows, by command; a command whose description has
// some is not here. The files are those of docs/quickstart.md. A test reads every flag in them.
var examples = map[string][]string{
	"monotron": {
		"monotron preprocess_data --input text.jsonl --output-prefix text --tokenizer-type GPT2BPETokenizer --append-eod",
		"monotron pretrain_gpt --data-path text_text_document --tokenizer-type GPT2BPETokenizer --num-layers 2 ...",
		"monotron serve --load checkpoints",
	},
	"monotron preprocess_data": {
		"monotron preprocess_data --input text.jsonl --output-prefix text --tokenizer-type GPT2BPETokenizer --append-eod",
		"monotron preprocess_data --input 'corpus/*.txt' --input-format text --output-prefix corpus --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer --workers 8",
	},
	"monotron preprocess_data_fast": {
		"monotron preprocess_data_fast --input text.jsonl --output-prefix text --tokenizer-type GPT2BPETokenizer --append-eod",
	},
	"monotron merge_datasets": {
		"monotron merge_datasets --input shards --output-prefix all_text_document",
	},
	"monotron tokenize": {
		"monotron tokenize --input text.txt --tokenizer-type GPT2BPETokenizer",
		"monotron tokenize --input text.jsonl --json-key text --count --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer",
	},
	"monotron train_tokenizer": {
		"monotron train_tokenizer --input text.jsonl --output-dir tokenizer --vocab-size 32000",
	},
	"monotron inspect": {
		"monotron inspect dataset text_text_document",
		"monotron inspect checkpoint checkpoints --verify",
	},
	"monotron inspect dataset": {
		"monotron inspect dataset text_text_document",
		"monotron inspect dataset text_text_document --document 0 --tokenizer-type GPT2BPETokenizer",
	},
	"monotron inspect samples": {
		"monotron inspect samples --data-path text_text_document --seq-length 64 --train-samples 100 --text --tokenizer-type GPT2BPETokenizer",
		"monotron inspect samples --finetune-data train.jsonl --load SmolLM2-135M-Instruct --seq-length 512 --labels",
	},
	"monotron inspect checkpoint": {
		"monotron inspect checkpoint checkpoints",
		"monotron inspect checkpoint checkpoints --step 1000 --verify",
	},
	"monotron generate": {
		"monotron generate --load checkpoints --prompt 'Once upon a time' --max-new-tokens 100",
		"monotron generate --load SmolLM2-135M --prompt-file prompt.txt --temperature 0.8 --top-p 0.9 --seed 1",
	},
	"monotron logits": {
		"monotron logits --load checkpoints --prompt 'Once upon a' --last",
		"monotron logits --load SmolLM2-135M --prompt-ids 1 2 3 --output logits.safetensors",
	},
	"monotron serve": {
		"monotron serve --load checkpoints",
		"monotron serve --load SmolLM2-135M-Instruct --adapter docs=tuned/adapter",
		"monotron serve --load SmolLM2-135M-Instruct --bf16 --host 0.0.0.0 --port 8000 --api-key-file keys",
	},
	"monotron bench": {
		"monotron bench",
		"monotron bench step --model gpt2-124m --bf16 --micro-batch-size 4 --seq-length 512",
	},
	"monotron measure": {
		"monotron measure --output machine.json --quick",
		"monotron measure --output cluster.json --name cluster",
	},
	"monotron doctor": {
		"monotron doctor",
		"monotron launch --hostfile hosts -- doctor --hosts",
	},
	"monotron verify case": {
		"monotron verify case .tools/golden-*/model/llama",
		"monotron verify case my-case --all --json",
	},
	"monotron plan": {
		"monotron plan run --machine machine.json pretrain_gpt --world-size 8 --num-layers 24 ...",
		"monotron plan schedule --pipeline-model-parallel-size 4 --micro-batches 8",
	},
	"monotron plan run": {
		"monotron plan run pretrain_gpt --world-size 8 --tensor-model-parallel-size 2 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --train-iters 1 --lr 1e-4 --mock-data --tokenizer-type NullTokenizer --vocab-size 50257",
		"monotron plan run --machine machine.json --timeline pretrain_gpt ...",
	},
	"monotron plan formulas": {
		"monotron plan formulas pretrain_gpt --world-size 8 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 ...",
	},
	"monotron plan table": {
		"monotron plan table --machine machine.json layouts.csv",
	},
	"monotron plan schedule": {
		"monotron plan schedule --pipeline-model-parallel-size 4 --micro-batches 8",
		"monotron plan schedule --pipeline-model-parallel-size 4 --micro-batches 8 --num-virtual-stages-per-pipeline-rank 2 --svg schedule.svg",
	},
	"monotron plan search": {
		"monotron plan search --gpus 64 --machine h100 --bf16 --model llama3-8b --global-batch-size 512",
	},
	"monotron postmortem": {
		"monotron postmortem runs/7",
		"monotron postmortem runs/7 --trace trace.json",
	},
	"monotron report": {
		"monotron report runs/7 --output report.html",
		"monotron report runs/7 --compare runs/8 --output both.html",
	},
	"monotron watch": {
		"monotron watch runs/7",
		"monotron watch runs/7 --terminal",
	},
	"monotron launch": {
		"monotron launch --nproc-per-node 8 --max-restarts 3 -- pretrain_gpt --tensor-model-parallel-size 2 ...",
	},
	"monotron completion": {
		"source <(monotron completion bash)",
	},
}
