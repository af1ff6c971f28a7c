package chat

import (
	"context"
	"math"
	"math/rand/v2"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/mpu/ranks"
	"monotron/tools/internal/answering"
	"monotron/tools/internal/command"
)

const description = `Answers what you type, in the form of the model's chat template and with the conversation so far as context. A model
without a chat template continues the text. Commands:
  /reset         begin a new conversation
  /system TEXT   set the system text, and begin a new conversation; without TEXT show it
  /help          list the commands
  /exit          end the program, like Ctrl-D
Ctrl-C stops an answer, not the program.

Where standard input or output is not a terminal, each line of standard input is a question, and standard output gets the
answers and nothing else.

Examples:
  monotron chat SmolLM2-135M-Instruct
  monotron chat tuned/model --system "You answer in one sentence." --temperature 0
  monotron chat SmolLM2-135M-Instruct --adapter tuned/adapter
  monotron chat --bf16 SmolLM2-135M-Instruct <questions.txt >answers.txt`

// Command is chat; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "chat",
		Usage:       "chat with a model in the terminal",
		ArgsUsage:   "MODEL",
		Description: description,
		Flags:       allFlags(),
		Action: func(c *cli.Context) error {
			o, err := readOptions(c)
			if err != nil {
				return err
			}
			one, err := command.Opener(c, open)
			if err != nil {
				return err
			}
			return run(c, one, o)
		},
	})
}

func allFlags() []cli.Flag {
	return command.ModelFlags(
		&cli.StringFlag{Name: "system", Usage: "begin the conversation with a system message of this text"},
		command.AdapterFlag(),
		&cli.StringFlag{Name: "chat-template", Usage: "read the chat template, in Jinja, from this file (default: the tokenizer's template)"},
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "max-new-tokens", Usage: "limit an answer to N tokens (default: as many as fit into the context; 128 for a model without a chat template)"}),
		command.Between(0, 100, &cli.Float64Flag{Name: "temperature", Value: 0.7, Usage: "divide the logits by this number; 0 takes the most likely token"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "top-k", Usage: "sample from the N most likely tokens (0 uses all tokens)"}),
		command.Between(0.0001, 1, &cli.Float64Flag{Name: "top-p", Value: 0.95, Usage: "sample from the smallest set of tokens whose probabilities add up to at least this number"}),
		command.Between(0, 1, &cli.Float64Flag{Name: "min-p", Usage: "sample only from tokens that have at least this fraction of the probability of the most likely token"}),
		command.Between(0.01, 100, &cli.Float64Flag{Name: "repetition-penalty", Value: 1, Usage: "divide positive logits of tokens that occurred before by this number, and multiply negative ones by it"}),
		command.Between(0, math.MaxUint64, &cli.Uint64Flag{Name: "seed", Usage: "set the seed of the sampling; the same seed gives the same answers (default: a random one)"}),
		command.Between(0, 1<<30, &cli.IntFlag{Name: "kv-cache-memory", Usage: "use N MiB for the KV cache on each rank (default: enough for the model's context)"}),
	)
}

// options are the flags, checked.
type options struct {
	dir      string
	load     inference.LoadOptions
	layout   inference.Layout
	system   string
	template string
	most     int   // tokens of an answer; 0: not asked for
	cache    int64 // bytes; 0: by the context
	sampling inference.Sampling
}

func readOptions(c *cli.Context) (o options, err error) {
	// One model, given as a word or by --load.
	words := c.Args().Slice()
	if dir := c.String("load"); dir != "" {
		words = append(words, dir)
	}
	if len(words) != 1 {
		return o, exitcode.Errorf(exitcode.Usage, "chat needs one model, as in monotron chat tuned/model, but has %d", len(words))
	}
	o.dir, o.load.Step = words[0], c.Int64("ckpt-step")
	if o.load.Precision, err = command.Precision(c); err != nil {
		return o, err
	}
	o.layout.TP, o.layout.PP, o.layout.EP = command.Layout(c)
	if dir := c.String("adapter"); dir != "" {
		o.load.Adapters = []inference.Adapter{{Name: dir, Dir: dir}}
	}
	if path := c.String("chat-template"); path != "" {
		if o.template, err = answering.ReadTemplate(path); err != nil {
			return o, err
		}
	}
	o.system, o.most, o.cache = c.String("system"), c.Int("max-new-tokens"), int64(c.Int("kv-cache-memory"))<<20
	// Without a seed every conversation draws its own.
	o.sampling = inference.Sampling{Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
		Repetition: c.Float64("repetition-penalty"), Seed: c.Uint64("seed")}
	if !c.IsSet("seed") {
		o.sampling.Seed = rand.Uint64()
	}
	return o, nil
}

// rowsAtOnce of a prompt go through the model together.
const rowsAtOnce = 256

// run loads the model and talks until the lines end.
func run(c *cli.Context, open func() (*device.Device, error), o options) error {
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	in := openLines(c.App.Reader)
	defer in.close()
	notes := &command.Printer{W: c.App.ErrWriter}
	size := func(m *inference.Loaded, blockBytes int64) (inference.BatcherConfig, error) {
		capacity, sharers := answering.CapacityOf(m.Device, o.layout.Ranks())
		return answering.Batching(inference.BatcherConfig{Sequences: 1, Tokens: rowsAtOnce, Queue: 1}, o.cache, m.MaxContext, blockBytes, capacity, sharers)
	}
	talked := make(chan error, 1)
	err := inference.Serve(ctx, o.layout, ranks.Config{Open: open}, o.dir, o.load, size, func(m *inference.Loaded, b *inference.Batcher) error {
		model, err := answering.Of(c, m, o.template)
		if err != nil {
			return err
		}
		t, err := newTalk(model, b, o, &command.Printer{W: c.App.Writer}, notes)
		if err != nil {
			return err
		}
		for _, n := range m.Notes {
			notes.Printf("%s\n", n)
		}
		go func() {
			talked <- t.run(ctx, in)
			b.Drain()
		}()
		return notes.Err
	})
	if ctx.Err() != nil && context.Cause(c.Context) == nil {
		return nil // asked to end
	}
	if err != nil {
		return err
	}
	return <-talked
}
