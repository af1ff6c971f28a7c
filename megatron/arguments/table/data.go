package table

const (
	noFIM     = "fill-in-the-middle samples are not built in; prepare them in the corpus"
	oneValid  = "validation sets are blended into one; run one evaluation a set with --skip-train"
	emptyPath = "an empty list means no data there; here it is an error"
	noChat    = "conversations are not trained on; preprocess them to plain text"
)

// dataFlags say where tokens come from.
var dataFlags = owned(Data,
	works("data-path", Strings, "", "Data.DataPath", "prefixes of .bin/.idx files, or WEIGHT PREFIX pairs").differs(emptyPath),
	works("train-data-path", Strings, "", "Data.TrainDataPath", "the same for training alone").differs(emptyPath),
	works("valid-data-path", Strings, "", "Data.ValidDataPath", "the same for validation").differs(emptyPath),
	works("test-data-path", Strings, "", "Data.TestDataPath", "the same for the test").differs(emptyPath),
	works("data-args-path", String, "", "Data.DataArgsPath", "file that holds what --data-path would"),
	works("per-split-data-args-path", String, "", "Data.PerSplitDataArgsPath", "JSON file with the lists train, valid and test"),
	works("split", String, "", "Data.Split", "shares of training, validation and test (969,30,1 with --data-path)"),
	works("data-cache-path", String, "", "Data.CachePath", "folder of index arrays (beside the data)"),
	works("mock-data", Switch, "", "Data.Mock", "made-up tokens"),
	works("dataloader-type", String, "single", "DataloaderType", "one pass in the built order, or shuffled passes for ever").
		choices("single", "cyclic").but("the loader is built in; use single or cyclic", "external").differs("the default single is filled in later"),
	works("no-data-sharding", Switch, "", "NoDataSharding", "cyclic: every rank draws from all samples, not from a part of its own"),
	works("num-workers", Int, "2", "NumWorkers", "goroutines that read ahead").from(0, 1024),
	works("reset-position-ids", Switch, "", "Data.ResetPositionIDs", "positions start anew after an end of document"),
	works("reset-attention-mask", Switch, "", "Data.ResetAttentionMask", "no attention across an end of document"),
	works("eod-mask-loss", Switch, "", "Data.EODMaskLoss", "no loss at an end of document"),
	works("dataloader-inter-document-masking", Switch, "", "Data.InterDocumentMasking", "no attention across the end of a sequence of the corpus"),
	works("allow-ambiguous-pad-tokens", Switch, "", "Data.AllowAmbiguousPad", "padding may share its id with a real token"),
	works("no-mmap-bin-files", Switch, "", "Data.NoMmapBinFiles", "read .bin files instead of mapping them").alias("disable-mmap-bin-files"),
	works("mid-level-dataset-surplus", Float, "0.005", "Data.Surplus", "share of spare samples per blended dataset").from(0, 10),
	accepted("no-create-attention-mask-in-dataloader", Switch, "", "masks are never stored"),
	accepted("num-dataset-builder-threads", Int, "1", "builders use the cores there are"),
	accepted("dataloader-fast-cache-load", Switch, "", "each process builds or reads the index arrays by itself"),
	accepted("dataloader-defer-npy-index-mmap", Switch, "", "index arrays are mapped when first read"),
	accepted("trust-remote-code", Switch, "", "no code is loaded"),
	accepted("tokenizer-hf-no-use-fast", Switch, "", "there is one implementation of a tokenizer here"),
	accepted("use-tokenizer-model-from-checkpoint-args", Switch, "", "--use-checkpoint-args takes the tokenizer's flags too"),
	refused("per-dataset-sequences-path", String, "every pair's .idx says how many sequences it has"),
	accepted("data-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("dataset-impl", String, "", "the format is read from the file").choices("mmap", "cached", "lazy", "infer"),
	accepted("mmap-warmup", Switch, "", "pages are read ahead"),

	works("tokenizer-type", String, "", "Tokenizer.Type", "as in GPT2BPETokenizer, HuggingFaceTokenizer, Llama2Tokenizer, TikTokenizer, NullTokenizer (from the files given)").
		differs("any text; what cannot be made is said when it is made, with what can"),
	works("tokenizer-model", String, "", "Tokenizer.Model", "SentencePiece file, Hugging Face folder or tiktoken file").alias("tokenizer-name-or-path"),
	works("tokenizer-special-tokens", Strings, "", "Tokenizer.SpecialTokens", "special tokens of a TikTokenizer, or further ones of a HuggingFaceTokenizer"),
	works("tokenizer-sentencepiece-legacy", Switch, "", "Tokenizer.Legacy", "a SentencePiece tokenizer takes --tokenizer-special-tokens and cuts them out of a text first"),
	works("tokenizer-hf-no-include-special-tokens", Switch, "", "Tokenizer.NoSpecial", "a HuggingFaceTokenizer puts no special tokens around a text"),
	works("tiktoken-num-special-tokens", Int, "", "Tokenizer.TikSpecials", "ids in front of a TikTokenizer's ranks (1000)").from(0, sizes).differs("the default 1000 is filled in later, for a TikTokenizer"),
	works("null-tokenizer-eod-id", Int, "", "Tokenizer.NullEOD", "end-of-document id of a NullTokenizer (the last id)").from(0, sizes),
	works("null-tokenizer-pad-id", Int, "", "Tokenizer.NullPad", "padding id of a NullTokenizer, whose positions count no loss (-1, which no token has)").from(-1, sizes).
		differs("the default -1 is filled in later"),
	works("vocab-file", String, "", "Tokenizer.VocabFile", "vocabulary of a BPE"),
	works("merge-file", String, "", "Tokenizer.MergeFile", "merges of a BPE"),
	refused("vocab-extra-ids", Int, "no model here uses them; leave it out"),
	works("tiktoken-pattern", String, "", "Tokenizer.TikPattern", "how a TikTokenizer splits text (v2)").choices("v1", "v2"),
)

// otherDataFlags are of samples that are not built here.
var otherDataFlags = families(Data,
	allAccepted("tokenizers give the same ids; the names of sample caches are those without it", switches("use-gigatoken")),
	allRefused(noFIM,
		switches("fim-data"),
		floats("fim-rate fim-spm-rate fim-fragment-rate"),
		texts("fim-split-sample fim-no-prefix fim-prefix-token fim-middle-token fim-suffix-token fim-pad-token fim-eod-token")),
	allRefused(oneValid,
		switches("multiple-validation-sets"),
		several("validation-set-names")),
	allRefused(noChat, texts("chat-template")),
	allRefused("--tokenizer-type and its files say what a tokenizer is", texts("tokenizer-metadata")),
	allRefused("white space is kept or not as the .model file says",
		switches("no-tokenizer-sentencepiece-ignore-extra-whitespaces/disable-tokenizer-sentencepiece-ignore-extra-whitespaces")))
