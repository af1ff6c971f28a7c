// Package logits is the command logits: the numbers a model gives for a prompt.
package logits

import (
	"sync"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/tools/internal/command"
)

// Command is logits; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "logits",
		Usage: "print a model's logits for a prompt",
		Description: "Prints a table of the most likely next tokens at each position of the prompt; with --json one object per position;\n" +
			"with --output writes all logits to a safetensors file.",
		Flags:  allFlags(),
		Action: command.Model(open, readOptions, run),
	})
}

func allFlags() []cli.Flag {
	return command.ModelFlags(append([]cli.Flag{
		command.AdapterFlag(),
		command.ContextFlag(),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "top-k", Value: 5, Usage: "show the N most likely tokens of each position; with --json, the default is the logits of all tokens"}),
		&cli.BoolFlag{Name: "last", Usage: "print the last position only"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object per position"},
		&cli.StringFlag{Name: "output", Usage: "write the logits (f32, [positions, vocabulary]) and the ids to this safetensors file instead of printing them"},
	}, command.PromptFlags()...)...)
}

type options struct {
	load   inference.LoadOptions
	layout inference.Layout
	top    int // tokens shown; 0: all, by id
	last   bool
	json   bool
	output string
}

func readOptions(c *cli.Context) (o options, err error) {
	o = options{top: c.Int("top-k"), last: c.Bool("last"), json: c.Bool("json"), output: c.String("output")}
	switch {
	case c.String("load") == "":
		return o, exitcode.Errorf(exitcode.Usage, "--load is missing; give the folder of the model")
	case o.top < 1:
		return o, exitcode.Errorf(exitcode.Usage, "--top-k must be at least 1, not %d", o.top)
	case o.output != "" && (o.json || c.IsSet("top-k")):
		return o, exitcode.Errorf(exitcode.Usage, "--output cannot be combined with --json or --top-k, because --output writes every logit to a file; leave these out")
	}
	if err = command.CheckOnePrompt(c); err != nil {
		return o, err
	}
	if o.json && !c.IsSet("top-k") {
		o.top = 0
	}
	o.layout.TP, o.layout.PP, o.layout.EP = command.Layout(c)
	o.layout.CP = c.Int("context-parallel-size")
	o.load.Step, o.load.Adapter = c.Int64("ckpt-step"), c.String("adapter")
	o.load.Precision, err = command.Precision(c)
	return o, err
}

// run computes on every rank; the first prints.
func run(c *cli.Context, open func() (*device.Device, error), o options) error {
	var j job
	var prepare sync.Once
	return inference.Run(o.layout, open, c.String("load"), o.load, func(rank int, m *inference.Loaded) error {
		prepare.Do(func() { j.err = j.prepare(c, m, o) })
		if j.err != nil {
			return j.err
		}
		if rank > 0 {
			return m.Logits(j.prompt, func(int, []float32) error { return nil })
		}
		return j.to.end(m.Logits(j.prompt, func(position int, logits []float32) error {
			if o.last && position < len(j.prompt)-1 {
				return nil
			}
			return j.to.position(position, logits)
		}))
	})
}

// job is what all ranks do alike.
type job struct {
	prompt []int32
	to     sink // of the first rank
	err    error
}

// prepare reads the prompt for the model m and opens the output.
func (j *job) prepare(c *cli.Context, m *inference.Loaded, o options) error {
	notes := &command.Printer{W: c.App.ErrWriter}
	for _, n := range m.Notes {
		notes.Printf("%s\n", n)
	}
	tok, err := command.OwnTokenizer(c, m.Tokenizer)
	if err != nil {
		return err
	}
	prompts, err := command.Prompts(c, tok)
	if err != nil {
		return err
	}
	j.prompt = prompts[0]
	switch {
	case o.output != "":
		j.to, err = newFile(o.output, m.Vocab, j.prompt, o.last)
	case o.json:
		j.to = &objects{Printer: command.Printer{W: c.App.Writer}, prompt: j.prompt, tok: tok, top: o.top}
	default:
		j.to = newTable(c.App.Writer, j.prompt, tok, o.top)
	}
	return err
}

// sink takes the positions in order; end gets the error that stopped them, or
// nil, and returns what the command returns.
type sink interface {
	position(position int, logits []float32) error
	end(err error) error
}
