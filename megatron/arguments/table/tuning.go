package table

// tuneFlags say what a model is tuned on, and how.
var tuneFlags = owned(Tuning,
	works("finetune-data", String, "", "Tuning.Data", "JSON-lines file to tune a model on: conversations, instructions or texts (docs/finetuning.md); model and tokenizer then come from --load"),
	works("tuning", String, "", "Tuning.Method", "method of tuning on --finetune-data (default: sft, supervised)").choices("sft"),
	works("finetune-eval-data", String, "", "Tuning.EvalData", "JSON-lines file of rows for validation; each evaluation reads all of them unless --eval-iters is given"),
	works("chat-template", String, "", "Tuning.ChatTemplate", "file with the chat template of --finetune-data, in Jinja (default: the tokenizer's)"),
	works("finetune-packing", String, "none", "Tuning.Packing", "how rows fill sequences: one each, by best fit with longer rows truncated or cut, or in the order of the file; rows of a sequence do not see each other").
		choices("none", "bfd", "bfd_split", "in_order"),
	works("train-on-prompts", Switch, "", "Tuning.LearnPrompts", "learn every token of a row instead of the answers alone"),
	works("no-data-shuffle", Switch, "", "Tuning.NoShuffle", "read the rows of --finetune-data in the order of the file in every epoch"),
)
