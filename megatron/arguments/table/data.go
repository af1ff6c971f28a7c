package table

const (
	noFIM     = "fill-in-the-middle samples are not supported; prepare them in the corpus"
	oneValid  = "validation sets are blended into one; run one evaluation per set with --skip-train"
	emptyPath = "an empty list means no data; in monotron an empty list is an error"
)

// dataFlags say where tokens come from.
var dataFlags = owned(Data,
	works("data-path", Strings, "", "Data.DataPath", "read data from the .bin and .idx files with these prefixes, or from WEIGHT PREFIX pairs; a prefix may be an s3:// URL").differs(emptyPath),
	works("train-data-path", Strings, "", "Data.TrainDataPath", "read training data from these prefixes, or WEIGHT PREFIX pairs").differs(emptyPath),
	works("valid-data-path", Strings, "", "Data.ValidDataPath", "read validation data from these prefixes, or WEIGHT PREFIX pairs").differs(emptyPath),
	works("test-data-path", Strings, "", "Data.TestDataPath", "read test data from these prefixes, or WEIGHT PREFIX pairs").differs(emptyPath),
	works("data-args-path", String, "", "Data.DataArgsPath", "read the arguments of --data-path from this file"),
	works("per-split-data-args-path", String, "", "Data.PerSplitDataArgsPath", "read the data paths of training, validation and test from this JSON file, which has the lists train, valid and test"),
	works("split", String, "", "Data.Split", "set the relative sizes of training, validation and test data (default with --data-path: 969,30,1)"),
	works("data-cache-path", String, "", "Data.CachePath", "keep the index arrays in this folder (default: the folder of the data)"),
	works("object-storage-cache-path", String, "", "Data.ObjectPath", "download the files of s3:// prefixes to this folder, once per host (default: a folder in the user's cache)"),
	works("mock-data", Switch, "", "Data.Mock", "train on generated tokens instead of files; the training, validation and test sets have a third of the tokens each, and a set whose size in --split is 0 is left out"),
	works("dataloader-type", String, "single", "DataloaderType", "set the order of samples: one pass in the order of the index (single), or repeated shuffled passes (cyclic)").
		choices("single", "cyclic").but("external loaders are not supported; use single or cyclic", "external").differs("the parser has no default; single is set later"),
	works("no-data-sharding", Switch, "", "NoDataSharding", "with --dataloader-type cyclic, let every rank read from all shuffled samples instead of only from its own shard"),
	works("num-workers", Int, "2", "NumWorkers", "read samples ahead with N goroutines").from(0, 1024),
	works("reset-position-ids", Switch, "", "Data.ResetPositionIDs", "restart positions after each end of document"),
	works("reset-attention-mask", Switch, "", "Data.ResetAttentionMask", "mask attention across an end of document"),
	works("eod-mask-loss", Switch, "", "Data.EODMaskLoss", "exclude end-of-document tokens from the loss"),
	works("dataloader-inter-document-masking", Switch, "", "Data.InterDocumentMasking", "mask attention across the end of each sequence of the corpus"),
	works("allow-ambiguous-pad-tokens", Switch, "", "Data.AllowAmbiguousPad", "allow the padding id to be the id of a real token"),
	works("no-mmap-bin-files", Switch, "", "Data.NoMmapBinFiles", "read .bin files with read calls instead of mapping them into memory").alias("disable-mmap-bin-files"),
	works("mid-level-dataset-surplus", Float, "0.005", "Data.Surplus", "set the fraction of spare samples per blended dataset").from(0, 10),
	accepted("no-create-attention-mask-in-dataloader", Switch, "", "masks are never stored"),
	accepted("num-dataset-builder-threads", Int, "1", "builders use all available cores"),
	accepted("dataloader-fast-cache-load", Switch, "", "each process builds or reads the index arrays by itself"),
	accepted("dataloader-defer-npy-index-mmap", Switch, "", "index arrays are mapped when first read"),
	accepted("trust-remote-code", Switch, "", "no code is loaded"),
	accepted("tokenizer-hf-no-use-fast", Switch, "", "each tokenizer has a single implementation"),
	accepted("use-tokenizer-model-from-checkpoint-args", Switch, "", "--use-checkpoint-args also takes the tokenizer's flags from the checkpoint"),
	refused("per-dataset-sequences-path", String, "the number of sequences is read from each .idx file; leave the flag out"),
	accepted("data-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("dataset-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("mmap-warmup", Switch, "", "pages are read ahead"),

	works("tokenizer-type", String, "", "Tokenizer.Type", "choose the tokenizer: GPT2BPETokenizer, HuggingFaceTokenizer, Llama2Tokenizer, TikTokenizer, NullTokenizer and others (default: chosen by the files given)").
		differs("accepts any text; in monotron an unknown type is an error that lists the known types"),
	works("tokenizer-model", String, "", "Tokenizer.Model", "read the tokenizer from this SentencePiece file, Hugging Face folder or tiktoken file").alias("tokenizer-name-or-path"),
	works("tokenizer-special-tokens", Strings, "", "Tokenizer.SpecialTokens", "set the special tokens of a TikTokenizer, or additional ones of a HuggingFaceTokenizer"),
	works("tokenizer-sentencepiece-legacy", Switch, "", "Tokenizer.Legacy", "let a SentencePiece tokenizer split a text at --tokenizer-special-tokens before the text is tokenized"),
	works("tokenizer-hf-no-include-special-tokens", Switch, "", "Tokenizer.NoSpecial", "do not let a HuggingFaceTokenizer add special tokens around a text"),
	works("tiktoken-num-special-tokens", Int, "", "Tokenizer.TikSpecials", "set the number of ids that a TikTokenizer reserves for special tokens, before the ids of its vocabulary (default: 1000)").from(0, sizes).differs("the parser has no default; 1000 is set later, for a TikTokenizer"),
	works("null-tokenizer-eod-id", Int, "", "Tokenizer.NullEOD", "set the end-of-document id of a NullTokenizer (default: the last id)").from(0, sizes),
	works("null-tokenizer-pad-id", Int, "", "Tokenizer.NullPad", "set the padding id of a NullTokenizer; tokens with this id are excluded from the loss (default: -1, which no token has)").from(-1, sizes).
		differs("the parser has no default; -1 is set later"),
	works("vocab-file", String, "", "Tokenizer.VocabFile", "read the vocabulary of a BPE tokenizer from this file"),
	works("merge-file", String, "", "Tokenizer.MergeFile", "read the merges of a BPE tokenizer from this file"),
	refused("vocab-extra-ids", Int, "no supported model uses extra ids; leave the flag out"),
	works("tiktoken-pattern", String, "", "Tokenizer.TikPattern", "choose the pattern by which a TikTokenizer splits text (default: v2)").choices("v1", "v2"),
)

// otherDataFlags are of samples that are not built here.
var otherDataFlags = families(Data,
	allAccepted("token ids are the same with and without this flag, and so are the names of sample caches", switches("use-gigatoken")),
	allRefused(noFIM,
		switches("fim-data"),
		floats("fim-rate fim-spm-rate fim-fragment-rate"),
		texts("fim-split-sample fim-no-prefix fim-prefix-token fim-middle-token fim-suffix-token fim-pad-token fim-eod-token")),
	allRefused(oneValid,
		switches("multiple-validation-sets"),
		several("validation-set-names")),
	allRefused("tokenizer metadata files are not supported; use --tokenizer-type and its files", texts("tokenizer-metadata")),
	allRefused("the .model file says whether white space is kept; leave the flag out",
		switches("no-tokenizer-sentencepiece-ignore-extra-whitespaces/disable-tokenizer-sentencepiece-ignore-extra-whitespaces")))
