package arguments

import (
	"slices"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
)

// synonyms are flags of nanoGPT, Hugging Face and others, and plain words, by the flags that do the same here.
var synonyms = map[string][]string{
	"learning-rate": {"lr"}, "max-lr": {"lr"}, "warmup-iters": {"lr-warmup-iters"}, "warmup-steps": {"lr-warmup-iters"}, "warmup-ratio": {"lr-warmup-fraction"},
	"lr-scheduler-type": {"lr-decay-style"}, "lr-schedule": {"lr-decay-style"}, "max-grad-norm": {"clip-grad"}, "grad-clip": {"clip-grad"}, "gradient-clipping": {"clip-grad"},
	"layers": {"num-layers"}, "n-layer": {"num-layers"}, "n-layers": {"num-layers"}, "heads": {"num-attention-heads"}, "num-heads": {"num-attention-heads"}, "n-head": {"num-attention-heads"}, "n-heads": {"num-attention-heads"},
	"n-embd": {"hidden-size"}, "d-model": {"hidden-size"}, "dim": {"hidden-size"}, "block-size": {"seq-length"}, "context-length": {"seq-length"}, "max-seq-length": {"seq-length"}, "dropout": {"hidden-dropout", "attention-dropout"},
	"max-iters": {"train-iters"}, "max-steps": {"train-iters"}, "steps": {"train-iters"}, "iters": {"train-iters"}, "epochs": {"train-iters", "train-samples"}, "num-train-epochs": {"train-iters", "train-samples"},
	"gradient-accumulation-steps": {"global-batch-size"}, "per-device-train-batch-size": {"micro-batch-size"}, "gradient-checkpointing": {"recompute-granularity"},
	"output-dir": {"save"}, "out-dir": {"save"}, "save-steps": {"save-interval"}, "save-total-limit": {"keep-last"}, "resume": {"load"}, "resume-from-checkpoint": {"load"}, "checkpoint": {"load"},
	"logging-steps": {"log-interval"}, "eval-steps": {"eval-interval"}, "report-to": {"log-jsonl", "tensorboard-dir", "mlflow-tracking-uri"}, "wandb": {"log-jsonl", "mlflow-tracking-uri"},
	"data": {"data-path"}, "dataset": {"data-path"}, "input": {"data-path"}, "tokenizer": {"tokenizer-type", "tokenizer-model"}, "dtype": {"bf16", "fp16"}, "threads": {"cpu-threads"}, "gpus": {"world-size"},
}

// meant names the flags that an unknown one may mean: synonyms, else similar names, of flags that work where there are any.
func meant(u *argv.Unknown) {
	if list, ok := synonyms[u.Name]; ok {
		u.Near = list
		return
	}
	works := func(name string) bool { return table.Find(name).Class == table.Works }
	if list := slices.DeleteFunc(slices.Clone(u.Near), func(name string) bool { return !works(name) }); len(list) > 0 {
		u.Near = list
	}
}
