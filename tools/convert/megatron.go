package convert

// instead says what to use for the flags of Megatron-LM's tools/checkpoint/convert.py, of its loaders and of
// its savers.
var instead = map[string]string{
	// What is read.
	"model-type":              "leave the flag out; every model is a GPT",
	"loader":                  "leave the flag out; the format of --input is detected (--from sets it)",
	"load-dir":                "use --input",
	"checkpoint-type":         "leave the flag out; the format of --input is detected (--from sets it)",
	"model-size":              "leave the flag out; the value is read from the input",
	"true-vocab-size":         "leave the flag out; the value is read from the input",
	"vocab-file":              "leave the flag out; use --tokenizer DIR with --to hf or gguf",
	"tokenizer-model":         "leave the flag out; use --tokenizer DIR with --to hf or gguf",
	"position-embedding-type": "leave the flag out; the value is read from the input",
	"loader-transformer-impl": "leave the flag out; the value is read from the input",
	"megatron-path":           "leave the flag out; Megatron-LM is not needed",

	// What is written.
	"saver":                              "use --to torch or torch_dist for Megatron-LM, --to hf for Hugging Face",
	"save-dir":                           "use --output",
	"saver-transformer-impl":             "use --transformer-impl",
	"target-tensor-parallel-size":        "use --tensor-model-parallel-size with --to torch or torch_dist",
	"target-pipeline-parallel-size":      "use --pipeline-model-parallel-size with --to torch or torch_dist",
	"target-expert-parallel-size":        "use --expert-model-parallel-size with --to torch or torch_dist",
	"target-expert-tensor-parallel-size": "use --expert-tensor-parallel-size with --to torch or torch_dist",
	"bf16":                               "use --dtype bf16",
	"fp16":                               "use --dtype fp16",

	// How it is done.
	"max-queue-size":  "leave the flag out; tensors are converted one at a time",
	"sequential-save": "leave the flag out; tensors are converted one at a time",
	"no-checking":     "leave the flag out; names and shapes are always checked",
}
