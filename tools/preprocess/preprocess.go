// Package preprocess is the command preprocess_data: JSON lines (or plain text)
// to token files. The output depends on the input and the flags only, never on
// the number of workers, and appears under its name when it is complete.
//
// preprocess.go reads the flags, pipeline.go moves blocks of lines from the
// reader through the workers to the writer, writer.go has the output pairs,
// text.go the plain-text mode.
package preprocess

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/fault"
	"monotron/tokenizer"
	"monotron/tokenizer/punkt"
	"monotron/tools/internal/command"
)

// options is what the flags say.
type options struct {
	inputs     []string
	prefix     string
	workers    int
	keys       []string
	appendEOD  bool
	partitions int
	sequential bool // --keep-sequential-samples
	emptyToo   bool // preprocess_data_fast: an empty document is a sequence
	interval   int64
	format     string
	textSplit  float64
	tok        tokenizer.Tokenizer
	dtype      dataset.DType
	sentences  *punkt.Splitter                  // --split-sentences, else nil
	say        func(format string, args ...any) // to stderr
}

// Command is preprocess_data.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "preprocess_data",
		Usage: "turn JSON lines into .bin/.idx token files",
		Flags: flagTable(),
		Action: func(c *cli.Context) error {
			return run(c, false)
		},
	})
}

// FastCommand is preprocess_data_fast, Megatron's second tool: the same but that
// a document without tokens becomes a sequence.
func FastCommand() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "preprocess_data_fast",
		Usage: "preprocess_data, with empty documents kept as sequences",
		Flags: append(flagTable(), &cli.BoolFlag{Name: "use-gigatoken", Usage: "accepted, no effect here: there is one tokenizer"}),
		Action: func(c *cli.Context) error {
			return run(c, true)
		},
	})
}

func flagTable() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringSliceFlag{Name: "input", Usage: "JSON-lines files, globs, or - for standard input; .gz, .zst and .bz2 are unpacked"},
		&cli.StringFlag{Name: "output-prefix", Usage: "output is PREFIX_KEY_document.bin and .idx"},
		&cli.IntFlag{Name: "workers", Value: runtime.NumCPU(), Usage: "goroutines that tokenize; the output does not depend on it"},
		&cli.StringSliceFlag{Name: "json-keys", Value: cli.NewStringSlice("text"), Usage: "keys to take from each line, one output each"},
		&cli.BoolFlag{Name: "append-eod", Usage: "end each document that has tokens with the end-of-document id"},
		&cli.IntFlag{Name: "partitions", Value: 1, Usage: "deal the lines to this many pairs, then join them"},
		&cli.BoolFlag{Name: "keep-sequential-samples", Usage: "partitions are blocks of lines instead of lines in turn"},
		&cli.Int64Flag{Name: "log-interval", Value: 1000, Usage: "documents between progress lines"},
		&cli.StringFlag{Name: "input-format", Value: "jsonl", Usage: "jsonl, or text: the whole of each file is one document"},
		&cli.Float64Flag{Name: "text-split", Usage: "with --input-format text: this fraction of the characters goes to PREFIX_train_document, the rest to PREFIX_val_document"},
		&cli.StringFlag{Name: "dataset-impl", Value: "mmap", Usage: "mmap; the old lazy and cached formats are refused"},
		&cli.BoolFlag{Name: "split-sentences", Usage: "make each sentence a sequence, by NLTK's Punkt; output is PREFIX_KEY_sentence"},
		&cli.BoolFlag{Name: "keep-newlines", Usage: "with --split-sentences: leave the white space after a sentence on it"},
		&cli.StringFlag{Name: "lang", Value: "english", Usage: "with --split-sentences: language of the Punkt parameters, read from NLTK_DATA"},
		&cli.BoolFlag{Name: "find-optimal-num-workers", Usage: "refused: in Megatron it cuts the output short to time it"},
		&cli.IntSliceFlag{Name: "workers-to-check", Usage: "accepted, no effect"},
		&cli.IntFlag{Name: "max-documents", Usage: "accepted, no effect"},
		&cli.IntFlag{Name: "make-vocab-size-divisible-by", Usage: "accepted, no effect: the token type follows from the unpadded vocabulary"},
	}, command.TokenizerFlags()...)
}

func run(c *cli.Context, fast bool) error {
	o, err := read(c)
	if err != nil {
		return err
	}
	o.emptyToo = fast
	start := time.Now()
	if o.format == "text" {
		err = o.text(c)
	} else {
		err = o.jsonl()
	}
	if err == nil {
		o.say("%s: done in %.2f s", o.prefix, time.Since(start).Seconds())
	}
	return err
}

// read checks the flags; every problem of one kind is reported at once.
func read(c *cli.Context) (o *options, err error) {
	o = &options{
		prefix: c.String("output-prefix"), workers: c.Int("workers"), keys: c.StringSlice("json-keys"),
		appendEOD: c.Bool("append-eod"), partitions: c.Int("partitions"), sequential: c.Bool("keep-sequential-samples"),
		interval: c.Int64("log-interval"), format: c.String("input-format"), textSplit: c.Float64("text-split"),
		say: func(format string, args ...any) { fmt.Fprintf(c.App.ErrWriter, format+"\n", args...) },
	}
	if err := o.check(c); err != nil {
		return nil, err
	}
	for _, name := range []string{"workers-to-check", "max-documents", "make-vocab-size-divisible-by"} {
		if c.IsSet(name) {
			o.say("--%s is accepted and has no effect here", name)
		}
	}
	if o.inputs, err = expand(c.StringSlice("input")); err != nil {
		return nil, err
	}
	if c.Bool("split-sentences") {
		params, err := punkt.Find(c.String("lang"))
		if err != nil {
			return nil, err
		}
		o.sentences = punkt.NewSplitter(params, c.Bool("keep-newlines"))
	}
	return o, o.setTokenizer(c)
}

func (o *options) check(c *cli.Context) error {
	var problems []string
	need := func(ok bool, text string) {
		if !ok {
			problems = append(problems, text)
		}
	}
	need(!c.Args().Present(), fmt.Sprintf("%q belongs to no flag", strings.Join(c.Args().Slice(), " ")))
	need(len(c.StringSlice("input")) > 0, "--input is needed")
	need(o.prefix != "", "--output-prefix is needed")
	need(o.workers > 0, "--workers must be at least 1")
	need(o.partitions > 0, "--partitions must be at least 1")
	need(o.interval > 0, "--log-interval must be at least 1")
	need(o.format == "jsonl" || o.format == "text", "--input-format is jsonl or text")
	need(!c.IsSet("text-split") || o.format == "text" && o.textSplit > 0 && o.textSplit < 1, "--text-split is a fraction between 0 and 1 and goes with --input-format text")
	need(o.format != "text" || o.partitions == 1, "--partitions goes with JSON lines, not with --input-format text")
	need(o.format == "jsonl" || !c.Bool("split-sentences"), "--split-sentences goes with JSON lines, not with --input-format text")
	need(!c.Bool("find-optimal-num-workers"), "--find-optimal-num-workers is not supported: it would write cut output; the output here does not depend on --workers")
	need(slices.Contains([]string{"mmap", "infer"}, c.String("dataset-impl")), "--dataset-impl lazy and cached name a format that Megatron dropped; use mmap")
	if len(problems) > 0 {
		return fault.Errorf(fault.Usage, "%s", strings.Join(problems, "; "))
	}
	return nil
}

// setTokenizer makes the tokenizer and what follows from it. A CharTokenizer
// without a vocabulary file is made from the text later.
func (o *options) setTokenizer(c *cli.Context) error {
	config, err := command.TokenizerConfig(c)
	if err != nil {
		return err
	}
	if config.Type == "CharTokenizer" && config.VocabFile == "" && o.format == "text" {
		return nil
	}
	tok, err := tokenizer.FromConfig(config)
	if err != nil {
		return err
	}
	return o.use(tok)
}

func (o *options) use(tok tokenizer.Tokenizer) error {
	if o.appendEOD && tok.EOD() < 0 {
		return fault.Errorf(fault.Usage, "--append-eod: %s has no end-of-document id", tok.Name())
	}
	o.tok, o.dtype = tok, dataset.DTypeFor(tok.VocabSize())
	return nil
}

// expand turns globs into files, in the order of their names.
func expand(patterns []string) (files []string, err error) {
	for _, p := range patterns {
		if _, err := os.Stat(p); err == nil || p == "-" {
			files = append(files, p)
			continue
		}
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "--input %s: %w", p, err)
		}
		if len(found) == 0 {
			return nil, fault.Errorf(fault.NoInput, "--input %s: no such file", p)
		}
		files = append(files, found...)
	}
	return files, nil
}
