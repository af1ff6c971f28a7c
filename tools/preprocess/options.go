package preprocess

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/dataset/jsonl"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
	"monotron/tools/preprocess/punkt"
)

// options is what the flags say.
type options struct {
	inputs       []string
	parts        []jsonl.Part // of the inputs, with --shard
	format       string
	prefix       string
	output       dataset.Format
	workers      int
	keys         []string
	appendEOD    bool
	eodFirst     bool // llm.c's files begin documents with EOD
	skipBad      bool
	maxLine      int64
	resume       bool
	saveEvery    time.Duration
	dryRun       bool
	partitions   int
	sequential   bool // --keep-sequential-samples
	emptyToo     bool // preprocess_data_fast: an empty document is a sequence
	interval     int64
	maxDocuments int64 // of each partition, 0: all
	textSplit    float64
	tok          tokenizer.Tokenizer
	settings     tokenizer.Config // that make tok
	heap         sync.Mutex       // of the worker whose line does not fit the reserved buffers
	hash         string           // of tok
	dtype        dataset.DType
	sentences    *punkt.Splitter                  // --split-sentences, else nil
	split        string                           // how sentences are split, for the journal
	loaded       int64                            // bytes in use before the first line
	longest      int                              // length of the longest block so far that was longer than usual
	read         int64                            // documents read by this process
	say          func(format string, args ...any) // to stderr
}

var outputFormats = map[string]dataset.Format{"megatron": dataset.Pair, "llmc": dataset.LLMC, "nanogpt": dataset.Raw}

// read checks the flags; every problem of one kind is reported at once.
func read(c *cli.Context) (o *options, err error) {
	o = &options{
		format: c.String("input-format"), prefix: c.String("output-prefix"), output: outputFormats[c.String("output-format")],
		workers: c.Int("workers"), keys: c.StringSlice("json-keys"), appendEOD: c.Bool("append-eod"),
		skipBad: c.String("on-bad-line") == "skip", maxLine: c.Int64("max-line-bytes"),
		resume: c.Bool("resume"), saveEvery: c.Duration("resume-interval"), dryRun: c.Bool("dry-run"),
		partitions: c.Int("partitions"), sequential: c.Bool("keep-sequential-samples"),
		interval: c.Int64("log-interval"), textSplit: c.Float64("text-split"),
		say: func(format string, args ...any) { fmt.Fprintf(c.App.ErrWriter, format+"\n", args...) },
	}
	// The inputs and their format.
	if o.inputs, o.format, err = command.Inputs(c.StringSlice("input"), o.format, o.say); err != nil {
		return nil, err
	}
	o.format = cmp.Or(o.format, command.JSONLines)
	if err := o.check(c); err != nil {
		return nil, err
	}
	inputs := o.inputs // of all shards
	if text := c.String("shard"); text != "" {
		if err := o.setShard(text); err != nil {
			return nil, err
		}
	}
	// What follows from several flags.
	o.keys = unique(o.keys)
	if o.eodFirst = o.output == dataset.LLMC; o.output == dataset.Pair && slices.Contains([]string{"lazy", "cached"}, c.String("dataset-impl")) {
		o.output = dataset.OldPair
	}
	if c.IsSet("make-vocab-size-divisible-by") {
		o.say("--make-vocab-size-divisible-by has no effect: the token type follows from the unpadded vocabulary")
	}
	if c.Bool("split-sentences") {
		params, err := punkt.Find(c.String("lang"))
		if err != nil {
			return nil, err
		}
		o.sentences = punkt.NewSplitter(params, c.Bool("keep-newlines"))
		o.split = fmt.Sprint(c.String("lang"), c.Bool("keep-newlines"), os.Getenv("NLTK_DATA"))
	}
	if err := o.setTokenizer(c); err != nil {
		return nil, err
	}
	return o, o.apart(inputs)
}

func (o *options) check(c *cli.Context) error {
	var problems []string
	need := func(ok bool, text string) {
		if !ok {
			problems = append(problems, text)
		}
	}
	lines := o.format == "jsonl"
	stdin := slices.Contains(c.StringSlice("input"), "-")
	// What must be given, and known words.
	need(!c.Args().Present(), fmt.Sprintf("the argument %q does not belong to a flag", strings.Join(c.Args().Slice(), " ")))
	need(len(c.StringSlice("input")) > 0, "--input is missing; give files, folders or -")
	need(o.prefix != "", "--output-prefix is missing; give the path that output files begin with")
	need(o.saveEvery >= 0, "--resume-interval must not be negative")
	word := func(flag, given string, choices ...string) {
		need(slices.Contains(choices, given) || flag == "dataset-impl" && given == "infer", argv.WrongChoice(flag, given, choices...).Error())
	}
	word("input-format", o.format, "jsonl", "text", "tokens")
	word("output-format", c.String("output-format"), "megatron", "llmc", "nanogpt")
	word("on-bad-line", c.String("on-bad-line"), "error", "skip")
	word("dataset-impl", c.String("dataset-impl"), "mmap", "lazy", "cached")
	// Flags that need each other, and those that cannot be combined.
	need(!slices.Contains([]string{"lazy", "cached"}, c.String("dataset-impl")) || o.output == dataset.Pair, "--dataset-impl lazy or cached needs --output-format megatron")
	need(!c.IsSet("text-split") || o.textSplit > 0 && o.textSplit < 1, fmt.Sprintf("--text-split must be above 0 and below 1, not %v", o.textSplit))
	need(!c.IsSet("text-split") || o.format == "text", "--text-split needs --input-format text")
	need(o.partitions == 1 || o.output == dataset.Pair && !slices.Contains([]string{"lazy", "cached"}, c.String("dataset-impl")), "--partitions needs --output-format megatron and --dataset-impl mmap")
	for flag, set := range map[string]bool{
		"--partitions": o.partitions > 1, "--split-sentences": c.Bool("split-sentences"), "--resume": o.resume, "--shard": c.IsSet("shard"),
		"--find-optimal-num-workers": c.Bool("find-optimal-num-workers"), "--on-bad-line skip": o.skipBad,
	} {
		need(lines || !set, flag+" needs JSON lines, not --input-format "+o.format)
	}
	need(o.format != "tokens" || !o.appendEOD, "--append-eod cannot be combined with --input-format tokens, whose tokens are not changed; leave --append-eod out")
	need(o.format != "tokens" || !stdin, "--input-format tokens cannot read standard input; give files")
	need(!stdin || o.partitions == 1 || !o.sequential, "--keep-sequential-samples cannot read standard input, because it first counts the lines; give files")
	need(!stdin || !c.Bool("find-optimal-num-workers"), "--find-optimal-num-workers cannot read standard input, because it reads the input several times; give files")
	need(!c.IsSet("shard") || !stdin, "--shard cannot read standard input; give files")
	need(!c.IsSet("shard") || !c.Bool("find-optimal-num-workers"), "--find-optimal-num-workers cannot be combined with --shard; leave one out")
	need(!o.dryRun || !stdin, "--dry-run cannot read standard input, because the real run could not read it again; give files")
	if len(problems) > 0 {
		slices.Sort(problems)
		return exitcode.Errorf(exitcode.Usage, "%s", strings.Join(problems, "; "))
	}
	return nil
}

// unique drops what is named again.
func unique(names []string) (list []string) {
	for _, n := range names {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// setTokenizer makes the tokenizer and what follows from it. A CharTokenizer
// without a vocabulary file is made from the text later; tokens need none.
func (o *options) setTokenizer(c *cli.Context) error {
	config, err := command.TokenizerConfig(c)
	if err == nil {
		err = command.NoteIdle(c, config)
	}
	if err != nil {
		return err
	}
	o.settings = config
	if config.Type == "CharTokenizer" && config.VocabFile == "" && o.format == "text" || config.Type == "" && o.format == "tokens" {
		return nil
	}
	if config.Type == "CharTokenizer" && config.VocabFile == "" {
		return exitcode.Errorf(exitcode.Usage, "--tokenizer-type CharTokenizer can make its vocabulary only from text files (.txt, or --input-format text), not from %s; give text files, or the JSON list of all characters as --vocab-file", o.format)
	}
	tok, err := tokenizer.FromConfig(config)
	if err != nil {
		return err
	}
	return o.use(tok)
}

func (o *options) use(tok tokenizer.Tokenizer) error {
	if o.appendEOD && tok.EOD() < 0 {
		return exitcode.Errorf(exitcode.Usage, "--append-eod needs an end-of-document id, but %s has none; leave --append-eod out, or use another tokenizer", tok.Name())
	}
	o.tok = tok
	switch o.output {
	case dataset.Pair:
		o.dtype = dataset.DTypeFor(tok.VocabSize())
	case dataset.OldPair:
		o.dtype = dataset.I32
	case dataset.LLMC:
		o.dtype = dataset.LLMCType(tok.VocabSize())
	case dataset.Raw:
		if o.dtype = dataset.U16; tok.VocabSize() > 1<<16 {
			return exitcode.Errorf(exitcode.Usage, "--output-format nanogpt has 16 bits per token, which is too few for the %[2]d ids of %[1]s; use --output-format megatron or llmc", tok.Name(), tok.VocabSize())
		}
	}
	return nil
}
