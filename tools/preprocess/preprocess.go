package preprocess

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/dataset/jsonl"
	"monotron/tools/internal/command"
)

// Command is preprocess_data.
func Command() *cli.Command {
	return command.WrapInstead(&cli.Command{
		Name:  "preprocess_data",
		Usage: "convert JSON lines, Parquet, WebDataset, MDS, text or other token files to .bin/.idx token files",
		Flags: flagTable(),
		Action: func(c *cli.Context) error {
			return run(c, false)
		},
	}, instead)
}

// FastCommand is preprocess_data_fast, Megatron's second tool: the same but that
// a document without tokens becomes a sequence.
func FastCommand() *cli.Command {
	return command.WrapInstead(&cli.Command{
		Name:  "preprocess_data_fast",
		Usage: "run preprocess_data, with empty documents kept as sequences",
		Flags: append(flagTable(), &cli.BoolFlag{Name: "use-gigatoken", Usage: "do nothing: there is only one implementation of each tokenizer"}),
		Action: func(c *cli.Context) error {
			return run(c, true)
		},
	}, instead)
}

// instead says what to use for flags of Megatron-LM's preprocess_data.py, of any version, that are not here.
var instead = map[string]string{
	"chunk-size":      "leave the flag out; workers get blocks of a fixed size",
	"performance-dir": "leave the flag out; --find-optimal-num-workers prints its measurements",
	"vocab":           "use --vocab-file",
	"need-pad-id":     "leave the flag out; padding is added when samples are read",
}

func flagTable() []cli.Flag {
	return append([]cli.Flag{
		// Input and output.
		&cli.StringSliceFlag{Name: "input", Usage: "read these files, globs or folders, or - for standard input; gzip, zstd, bzip2, xz and lzma are decompressed"},
		&cli.StringFlag{Name: "input-format", Usage: "set the format of the input: jsonl (JSON lines, or rows of Parquet, WebDataset and MDS), text (each file is one document) or tokens (.bin/.idx pairs by prefix, llm.c's or nanoGPT's .bin) (default: by the file names: .txt and .md are text, .bin and .idx tokens, others jsonl)"},
		&cli.StringFlag{Name: "output-prefix", Usage: "write the output files PREFIX_KEY_document.bin and .idx; earlier output files of this prefix are replaced; an input is never replaced"},
		&cli.StringFlag{Name: "output-format", Value: "megatron", Usage: "set the format of the output: megatron (.bin/.idx pairs), llmc (llm.c's .bin) or nanogpt (a .bin of 16-bit tokens)"},
		command.Between(1, command.Threads, &cli.IntFlag{Name: "workers", Value: runtime.NumCPU(), Usage: "tokenize with N goroutines; the output does not depend on N"}),
		&cli.StringSliceFlag{Name: "json-keys", Value: cli.NewStringSlice("text"), Usage: "read these keys from each line, and write separate output files for each key"},
		&cli.BoolFlag{Name: "append-eod", Usage: "add the end-of-document id to the end of each document that has tokens (with --output-format llmc, to the start)"},
		// Lines that cannot be read.
		&cli.StringFlag{Name: "on-bad-line", Value: "error", Usage: "choose what to do with a line that cannot be read: error (end the run) or skip (leave the line out and report it)"},
		command.Between(1, 1<<40, &cli.Int64Flag{Name: "max-line-bytes", Value: jsonl.DefaultMaxLine, Usage: "refuse lines of more than N bytes"}),
		// Large inputs: shards, restarts, estimates.
		&cli.StringFlag{Name: "shard", Usage: "`I/N`: read only the I-th of N shards of the input, as one of N hosts, and write PREFIX_IofN_KEY_document; merge_datasets joins the outputs of all hosts"},
		&cli.BoolFlag{Name: "resume", Usage: "continue a killed run with the same flags"},
		&cli.DurationFlag{Name: "resume-interval", Value: 10 * time.Second, Usage: "record the progress for --resume every `DURATION`"},
		&cli.BoolFlag{Name: "dry-run", Usage: "check the flags and the first 8 MB of each input, estimate the size and the time, and write no output"},
		command.Between(1, 9999, &cli.IntFlag{Name: "partitions", Value: 1, Usage: "write N .bin/.idx pairs in parallel and then join them, as in Megatron"}),
		&cli.BoolFlag{Name: "keep-sequential-samples", Usage: "with --partitions: give each partition a block of successive lines instead of every Nth line"},
		// Megatron's further flags.
		command.Between(1, command.Counts, &cli.Int64Flag{Name: "log-interval", Value: 1000, Usage: "print Megatron's progress line every N documents"}),
		command.Between(0, 1, &cli.Float64Flag{Name: "text-split", Usage: "with --input-format text: write this `FRACTION` of the characters to PREFIX_train_document; the rest goes to PREFIX_val_document"}),
		&cli.StringFlag{Name: "dataset-impl", Value: "mmap", Usage: "set the format of the .bin/.idx pair: mmap, or the format from before 2021 (TNTIDX), which lazy and cached both select"},
		&cli.BoolFlag{Name: "split-sentences", Usage: "make each sentence a sequence, split by NLTK's Punkt; writes PREFIX_KEY_sentence"},
		&cli.BoolFlag{Name: "keep-newlines", Usage: "with --split-sentences: keep the white space after a sentence"},
		&cli.StringFlag{Name: "lang", Value: "english", Usage: "with --split-sentences: read the Punkt parameters of this language from the folders that NLTK searches, such as those in NLTK_DATA; parameters of english are built in"},
		&cli.BoolFlag{Name: "find-optimal-num-workers", Usage: "measure the time that the first --max-documents documents take with each number of workers in --workers-to-check; as in Megatron, only these documents are written"},
		command.Between(1, command.Threads, &cli.IntSliceFlag{Name: "workers-to-check", Value: cli.NewIntSlice(16, 32, 64), Usage: "try these numbers of workers for --find-optimal-num-workers"}),
		command.Between(1, command.Counts, &cli.Int64Flag{Name: "max-documents", Value: 100000, Usage: "use N documents of each partition for --find-optimal-num-workers"}),
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "make-vocab-size-divisible-by", Usage: "do nothing: the data type of the token ids follows from the unpadded vocabulary"}),
	}, command.TokenizerFlags()...)
}

func run(c *cli.Context, fast bool) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the limit alone says when to collect
	o, err := read(c)
	if err != nil {
		return err
	}
	o.emptyToo = fast
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(o.memory(0)))
	start := time.Now()
	switch {
	case o.dryRun:
		return o.try(c)
	case o.format == "text":
		err = o.text(c)
	case o.format == "tokens":
		err = o.convert()
	case c.Bool("find-optimal-num-workers"):
		err = o.search(c)
	default:
		err = o.jsonl()
	}
	if err == nil {
		o.say("%s: done in %.2f s", o.prefix, time.Since(start).Seconds())
	}
	return err
}

// memory is how much the collector may let stand, in bytes: what is there when
// the tokenizer is loaded, memory for every worker, and for lines of a length that
// is not usual. The buffers of a run are taken at its start and used again, so its
// peak does not depend on the length of the input; tokenizers that leave garbage
// are collected at this limit, whenever they reach it.
func (o *options) memory(longest int) int64 {
	if o.loaded == 0 {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.HeapAlloc > loadedFew {
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		o.loaded = int64(m.HeapAlloc)
	}
	usual := min(int64(longest), longLine)
	return o.loaded + 32<<20 + int64(o.workers)*(48<<20+16*usual) + 6*(int64(longest)-usual) // a longer line has one worker at a time
}

// loadedFew is how much a tokenizer may take, with what its loading left behind,
// that is not worth a collection.
const loadedFew = 32 << 20
