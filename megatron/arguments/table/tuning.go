package table

// tuneFlags say what a model is tuned on, and how.
var tuneFlags = owned(Tuning,
	works("finetune-data", String, "", "Tuning.Data", "file of rows to tune a model on, as JSON lines, a JSON array or Parquet: conversations, instructions, texts or preferences (docs/finetuning.md); model and tokenizer then come from --load"),
	works("tuning", String, "", "Tuning.Method", "method of tuning on --finetune-data (default: sft, supervised); the others learn from preferences: pairs of a better and a worse answer, or with kto answers with a label").choices("sft", "dpo", "ipo", "orpo", "simpo", "kto"),
	works("preference-loss", String, "", "Tuning.Preference.Loss", "loss of --tuning dpo or kto (default: the method's own, sigmoid or kto)").
		choices("sigmoid", "robust", "hinge", "ipo", "sigmoid_norm", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "kto", "apo_zero_unpaired"),
	works("beta", Float, "", "Tuning.Preference.Beta", "how closely preference tuning keeps to the reference; with orpo the weight of the preference term (default: 0.1, with simpo 2)").above(0, 1e6),
	works("label-smoothing", Float, "0", "Tuning.Preference.LabelSmoothing", "share of the pairs whose order is taken to be wrong: conservative DPO, or with --preference-loss robust Robust DPO").from(0, 0.5),
	works("simpo-gamma", Float, "0.5", "Tuning.Preference.Gamma", "margin between the answers of a pair that --tuning simpo asks for").from(0, 1e6),
	works("sft-weight", Float, "", "Tuning.Preference.SFTWeight", "weight of the better answers' negative log-likelihood in the loss of pairs (default: 0, with orpo 1, prompts included)").from(0, 1e6),
	works("kto-desirable-weight", Float, "1", "Tuning.Preference.Good", "weight of good answers in the loss of --tuning kto").from(0, 1e6),
	works("kto-undesirable-weight", Float, "1", "Tuning.Preference.Bad", "weight of bad answers in the loss of --tuning kto").from(0, 1e6),
	works("ref-load", String, "", "Tuning.Preference.Reference", "folder of the reference model of preference tuning (default: what the tuning starts from, without its adapter)"),
	works("finetune-eval-data", String, "", "Tuning.EvalData", "file of rows for validation; each evaluation reads all of them unless --eval-iters is given"),
	works("chat-template", String, "", "Tuning.ChatTemplate", "file with the chat template of --finetune-data, in Jinja (default: the tokenizer's)"),
	works("finetune-packing", String, "none", "Tuning.Packing", "how rows fill sequences: one each, by best fit with longer rows truncated or cut, or in the order of the file; rows of a sequence do not see each other").
		choices("none", "bfd", "bfd_split", "in_order"),
	works("train-on-prompts", Switch, "", "Tuning.LearnPrompts", "learn every token of a row instead of the answers alone"),
	works("lora-rank", Int, "0", "Adapter.Rank", "rank of a low-rank adapter to train instead of the weights (0 trains the weights)").from(0, 65536),
	works("lora-alpha", Float, "", "Adapter.Alpha", "scale of the adapter times its rank (default: the rank, which is a scale of 1)").from(0, 1e9),
	works("lora-dropout", Float, "0", "Adapter.Dropout", "dropout probability on the adapter's input").below(0, 1),
	works("lora-target-modules", Strings, "", "Adapter.Targets", "modules that get an adapter, by the ends of their Hugging Face names, separated by commas or spaces (default: all-linear, the linear layers of attention and MLP)"),
	works("use-rslora", Switch, "", "Adapter.RSLoRA", "scale the adapter by alpha over the square root of the rank"),
	works("use-dora", Switch, "", "Adapter.DoRA", "train a magnitude of each output row with the adapter (DoRA)"),
	works("quantize-base", String, "", "Adapter.Quantize", "round the frozen weights of linear layers to 4 bits before the adapter is trained (QLoRA; docs/finetuning.md)").choices("nf4"),
	works("double-quant", Switch, "", "Adapter.DoubleQuant", "with --quantize-base: round the scales of blocks to 8 bits as well"),
	works("adapter", String, "", "Adapter.Folder", "PEFT folder whose adapter is trained further; its settings replace the --lora flags"),
	works("no-data-shuffle", Switch, "", "Tuning.NoShuffle", "read the rows of --finetune-data in the order of the file in every epoch"),
)
