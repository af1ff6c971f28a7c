// Package generate is the command generate: it continues a text with a trained
// model, by sampling or by beam search.
package generate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// defaultNew is the length of a continuation that nobody asked for; it gives way
// to the model's positions.
const defaultNew = 128

// maxBeams keeps a slip of the keyboard from taking all memory.
const maxBeams = 1024

// maxSamples is how many continuations of a prompt may be asked for.
const maxSamples = 1_000_000

// Command is generate; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "generate",
		Usage: "continue a text with a trained model",
		Description: "Decodes greedily unless --temperature, --top-k, --top-p or --seed selects sampling, or --num-beams selects beam search.\n" +
			"Text is written to standard output as it is generated; everything else goes to standard error.",
		Flags:  allFlags(),
		Action: command.Model(open, readOptions, run),
	})
}

func allFlags() []cli.Flag {
	return command.ModelFlags(append([]cli.Flag{
		command.AdapterFlag(),
		command.ContextFlag(),
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "max-new-tokens", Value: defaultNew, Usage: "generate at most N tokens"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "max-length", Usage: "limit the prompt and its continuation together to N tokens, as in transformers; replaces --max-new-tokens"}),
		command.Between(0, 1e30, &cli.Float64Flag{Name: "temperature", Usage: "divide the logits by this number; 0 takes the most likely token (default: 0, or 1 if --top-k, --top-p or --seed is given)"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "top-k", Usage: "sample from the N most likely tokens (0 uses all tokens)"}),
		command.Between(0, 1, &cli.Float64Flag{Name: "top-p", Value: 1, Usage: "sample from the smallest set of tokens whose probabilities add up to at least this number"}),
		command.Between(0, math.MaxUint64, &cli.Uint64Flag{Name: "seed", Usage: "set the seed of the sampling; the same seed gives the same text"}),
		command.Between(1, maxSamples, &cli.IntFlag{Name: "num-samples", Aliases: []string{"num-return-sequences"}, Value: 1, Usage: "print N continuations per prompt; with --num-beams, print the best N"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "no-repeat-ngram-size", Usage: "allow no sequence of N tokens to occur twice (0 allows all)"}),
		&cli.StringFlag{Name: "stop-token", Usage: "end the text at this token id; the value none lets no token end it (default: the ids that the model's folder names, else the tokenizer's end of document)"},
		command.Between(1, maxBeams, &cli.IntFlag{Name: "num-beams", Value: 1, Usage: "use beam search with N beams, each with its own cache and row of logits (1 disables beam search)"}),
		command.Between(-1000, 1000, &cli.Float64Flag{Name: "length-penalty", Value: 1, Usage: "beam search: divide log-probabilities by the length raised to this power"}),
		&cli.BoolFlag{Name: "early-stopping", Usage: "beam search: stop when --num-beams texts are finished"},
		&cli.BoolFlag{Name: "only-new", Usage: "do not print the prompt before its continuation"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object per text"},
	}, command.PromptFlags()...)...)
}

// options are the flags, checked.
type options struct {
	load    inference.LoadOptions
	layout  inference.Layout
	sample  inference.SampleOptions // MaxNew, Seed, NoRepeatNgram and Ends count for beams too
	samples int                     // of each prompt
	beam    inference.BeamOptions
	stop    string // "": the tokenizer's
	asked   bool   // the length was given
	length  int    // of prompt and continuation; 0: not asked for
}

func readOptions(c *cli.Context) (o options, err error) {
	// The model and its layout.
	if c.String("load") == "" {
		return o, exitcode.Errorf(exitcode.Usage, "--load is missing; give the folder of the model")
	}
	if err = command.CheckPrompt(c); err != nil {
		return o, err
	}
	o.load.Step, o.load.Adapter = c.Int64("ckpt-step"), c.String("adapter")
	if o.load.Precision, err = command.Precision(c); err != nil {
		return o, err
	}
	o.layout.TP, o.layout.PP, o.layout.EP = command.Layout(c)
	o.layout.CP = c.Int("context-parallel-size")
	// How tokens are chosen; any flag of sampling without a temperature means 1.
	o.sample = inference.SampleOptions{MaxNew: c.Int("max-new-tokens"), Sampling: inference.Sampling{
		Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"),
		NoRepeatNgram: c.Int("no-repeat-ngram-size"), Seed: c.Uint64("seed"),
	}}
	o.beam = inference.BeamOptions{Beams: c.Int("num-beams"), LengthPenalty: c.Float64("length-penalty"),
		EarlyStopping: c.Bool("early-stopping"), NoRepeatNgram: o.sample.NoRepeatNgram}
	sampling := c.IsSet("top-k") || c.IsSet("top-p") || c.IsSet("seed")
	if sampling && !c.IsSet("temperature") {
		o.sample.Temperature = 1
	}
	o.samples = c.Int("num-samples")
	o.stop, o.asked = c.String("stop-token"), c.IsSet("max-new-tokens")
	// How long a text may become.
	if c.IsSet("max-length") {
		switch o.length = c.Int("max-length"); {
		case o.asked:
			return o, exitcode.Errorf(exitcode.Usage, "--max-length cannot be combined with --max-new-tokens; give one")
		case o.length < 1:
			return o, exitcode.Errorf(exitcode.Usage, "--max-length must be at least 1, not %d", o.length)
		}
	}
	return o, o.check(sampling || c.IsSet("temperature"))
}

// check refuses values that mean nothing; sampling reports whether a flag of sampling was given.
func (o *options) check(sampling bool) error {
	s, b := &o.sample, &o.beam
	for _, bad := range []struct {
		is   bool
		text string
	}{
		{s.TopP == 0, "--top-p must be above 0 and at most 1, not 0"},
		{o.samples > 1 && b.Beams == 1 && s.Temperature == 0, fmt.Sprintf("--num-samples %d needs sampling, because without it all texts are the same; give --temperature, --top-k, --top-p or --seed", o.samples)},
		{b.Beams > 1 && o.samples > b.Beams, fmt.Sprintf("--num-samples must be at most --num-beams %d, the number of texts that beam search finds, not %d", b.Beams, o.samples)},
		{b.Beams > 1 && sampling, "--num-beams cannot be combined with --temperature, --top-k, --top-p or --seed, because beam search does not sample; leave these out"},
	} {
		if bad.is {
			return exitcode.Errorf(exitcode.Usage, "%s", bad.text)
		}
	}
	return nil
}

// run generates on every rank; the first prints.
func run(c *cli.Context, open func() (*device.Device, error), o options) error {
	notes := &command.Printer{W: c.App.ErrWriter}
	usage := make([]device.Usage, o.layout.Ranks())
	var j job
	var prepare sync.Once
	err := inference.Run(o.layout, open, c.String("load"), o.load, func(rank int, m *inference.Loaded) error {
		prepare.Do(func() { j.err = j.prepare(c, m, o, notes) })
		if j.err != nil {
			return j.err
		}
		defer func() { usage[rank] = m.Device.Arena.Usage() }()
		return j.run(rank, m, notes)
	})
	if err != nil {
		return err
	}
	for rank, u := range usage {
		notes.Printf("rank %d memory: %.1f MiB of parameters, %.1f MiB at the peak\n", rank, mebibytes(u.Peak[device.Parameters]), mebibytes(u.Max))
	}
	return notes.Err
}

// job is what all ranks do alike.
type job struct {
	tok     tokenizer.Tokenizer // nil: ids are printed
	prompts []prompt
	out     io.Writer // of the first rank
	json    bool
	echo    bool
	err     error
}

// prompt is where texts start, and how they continue.
type prompt struct {
	ids []int32
	o   options
}

// prepare reads the prompts and settles the options of each for the model m.
func (j *job) prepare(c *cli.Context, m *inference.Loaded, o options, notes *command.Printer) (err error) {
	j.out, j.json, j.echo = c.App.Writer, c.Bool("json"), !c.Bool("only-new")
	for _, n := range m.Notes {
		notes.Printf("%s\n", n)
	}
	if j.tok, err = command.OwnTokenizer(c, m.Tokenizer); err != nil {
		return err
	}
	prompts, err := command.Prompts(c, j.tok)
	if err != nil {
		return err
	}
	for _, ids := range prompts {
		p := prompt{ids, o}
		if err := p.o.setDefaults(j.tok, m, len(ids)); err != nil {
			return err
		}
		if err := m.CheckPrompt(ids, p.o.sample.MaxNew); err != nil {
			return err
		}
		j.prompts = append(j.prompts, p)
	}
	return nil
}

func (j *job) run(rank int, m *inference.Loaded, notes *command.Printer) error {
	w := &writer{Printer: command.Printer{W: j.out}, tok: j.tok, ends: j.prompts[0].o.sample.Ends, json: j.json, echo: j.echo, prompts: len(j.prompts)}
	if rank > 0 {
		w.W = io.Discard
	}
	start, tokens := time.Now(), 0
	for i, p := range j.prompts {
		n, err := w.generate(&m.Generator, i+1, p)
		if err != nil {
			return err
		}
		tokens += n
	}
	took := time.Since(start)
	if rank == 0 {
		notes.Printf("%d tokens in %.2f s, %.1f tokens/s\n", tokens, took.Seconds(), float64(tokens)/took.Seconds())
	}
	return w.Err
}

// setDefaults fills in what depends on the model: the tokens that end a text, and the length that
// was not asked for.
func (o *options) setDefaults(tok tokenizer.Tokenizer, m *inference.Loaded, prompt int) error {
	if o.length > 0 {
		if o.sample.MaxNew, o.asked = o.length-prompt, true; o.sample.MaxNew < 1 {
			return exitcode.Errorf(exitcode.Usage, "--max-length %d is too short: the prompt already has %d tokens", o.length, prompt)
		}
	}
	o.sample.Ends = nil
	switch {
	case o.stop == "":
		o.sample.Ends = endsOf(tok, m)
	case o.stop != "" && o.stop != "none":
		id, err := strconv.Atoi(o.stop)
		if err != nil || id < 0 || id >= m.Vocab {
			return exitcode.Errorf(exitcode.Usage, "--stop-token must be \"none\" or a token id below %d, not %s", m.Vocab, o.stop)
		}
		o.sample.Ends = []int32{int32(id)}
	}
	if left := m.MaxContext - prompt; m.MaxContext > 0 && !o.asked && left > 0 {
		o.sample.MaxNew = min(o.sample.MaxNew, left)
	}
	o.beam.MaxNew, o.beam.Ends = o.sample.MaxNew, o.sample.Ends
	return nil
}

// endsOf are the ids that end a text: those that the model's folder names, else the tokenizer's end of document.
func endsOf(tok tokenizer.Tokenizer, m *inference.Loaded) (ends []int32) {
	for _, id := range m.Ends {
		if int(id) < m.Vocab {
			ends = append(ends, id)
		}
	}
	if len(ends) == 0 && tok != nil && tok.EOD() >= 0 {
		ends = []int32{int32(tok.EOD())}
	}
	return ends
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
