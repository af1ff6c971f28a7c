package bench

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/tools/bench/serving"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// Command is bench; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "bench",
		Usage:     "measure this machine's peak rates, and training steps as a fraction of them",
		ArgsUsage: "[ops|peak|cores|step|start|data|layouts|contexts|experts|comm|ladder|plans|serve]",
		Description: "Without an argument, the command measures the GEMM peak and the copy bandwidth, and then complete training steps on random tokens.\n" +
			"ops: the same with one line per op and shape. peak: matrix products only. cores: time of a message between two cores. step: training steps only. start: from process start to the first finished step of a small model.\n" +
			"data: tokenizing, index arrays, blends, the loader.\n" +
			"layouts: the same step under layouts of 2 and 4 ranks in this process. contexts: one long sequence shared by 2 and 4 ranks, with each --cp-comm-type. comm: an all-reduce compared with the memory's own speed.\n" +
			"experts: a step of a mixture of experts (moe-237m, or --model, reduced to 2 layers and a small vocabulary) compared with steps of a dense model and of a mixture with more and smaller experts, both with the same number of operations per token.\n" +
			"ladder: on a GPU, the step in f32, TF32, bf16, bf16 with graphs, for a model of 11M parameters and GPT-2 124M, or --model.\n" +
			"plans: the numbers of formulas and of layouts that plan checks per second, and the time and memory of a large plan.\n" +
			"serve: a server of OpenAI's API, that of monotron or another one, under Poisson-distributed requests: time to the first token, time between tokens, goodput.",
		Flags: allFlags(),
		Action: func(c *cli.Context) error {
			// Only some kinds need a device: the others must run on hosts that have none.
			if c.NArg() > 1 {
				return exitcode.Errorf(exitcode.Usage, "bench accepts one argument, but has %q; choose from ops, peak, cores, step, start, data, layouts, contexts, experts, comm, ladder, plans and serve", c.Args().Slice())
			}
			switch what := c.Args().First(); what {
			case "start":
				return start(c)
			case "peak":
				return benchPeak(c, open)
			case "cores":
				return benchCores(c)
			case "data":
				return benchData(c)
			case "step":
				return benchStep(c, open)
			case "ladder":
				return ladder(c)
			case "layouts":
				return benchLayouts(c, open)
			case "contexts":
				return benchContexts(c, open)
			case "experts":
				return benchExperts(c, open)
			case "serve":
				return serving.Run(c)
			case "plans":
				return benchPlans(c)
			case "comm":
				return benchComm(c, open)
			case "", "ops":
				return run(c, open, what == "ops")
			default:
				return exitcode.Errorf(exitcode.Usage, "bench %s is unknown; choose from ops, peak, cores, step, start, data, layouts, contexts, experts, comm, ladder, plans and serve", what)
			}
		},
	})
}

func allFlags() []cli.Flag {
	list := []cli.Flag{
		&cli.StringFlag{Name: "model", Value: "gpt2-124m", Usage: "`NAME`: use the model shape of this name, such as gpt2-124m or llama-110m"},
		command.Between(1, 1<<20, &cli.IntFlag{Name: "micro-batch-size", Value: 4, Usage: "use N sequences per micro-batch; a step has one micro-batch"}),
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "seq-length", Value: 512, Usage: "use N tokens per sequence"}),
		command.Between(0, 1, &cli.Float64Flag{Name: "dropout", Usage: "set the dropout probability of hidden states and attention"}),
		command.Between(0, 1000000, &cli.IntFlag{Name: "steps", Usage: "time N steps, after one warm-up step (with 0, as many steps as fit into 15 s, but at least 3)"}),
		&cli.StringFlag{Name: "cuda-graph-impl", Value: "none", Usage: "choose whether CUDA graphs are used: local runs each micro-batch, and each update, as one graph on a GPU; none uses no graphs"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
	}
	list = append(list, dataFlags()...)
	list = append(list, serving.Flags()...)
	list = append(list, contextFlags()...)
	list = append(list, command.PrecisionFlags()...)
	return append(list, command.DeviceFlags()...)
}

// options are the flags, checked.
type options struct {
	name      string
	model     spec.Model
	batch     int
	seq       int
	steps     int
	precision string
	graphs    bool
}

// shape is what a step computes.
func (o options) shape() timing.Shape {
	return timing.Shape{Model: o.model, Rows: o.batch, Seq: o.seq, Precision: o.precision, Graphs: o.graphs}
}

func readOptions(c *cli.Context) (o options, err error) {
	o = options{name: c.String("model"), batch: c.Int("micro-batch-size"), seq: c.Int("seq-length"), steps: c.Int("steps"), graphs: c.String("cuda-graph-impl") == "local"}
	if o.model, err = spec.Preset(o.name); err != nil {
		return o, err
	}
	if o.precision, err = command.Precision(c); err != nil {
		return o, err
	}
	if o.precision == "" {
		o.precision = "f32"
	}
	rate := c.Float64("dropout")
	o.model.HiddenDropout, o.model.AttentionDropout = rate, rate
	for _, bad := range []struct {
		is   bool
		text string
	}{
		{!o.graphs && c.String("cuda-graph-impl") != "none", fmt.Sprintf("--cuda-graph-impl must be none or local, not %s", c.String("cuda-graph-impl"))},
		{o.model.MaxPositions > 0 && o.seq > o.model.MaxPositions, fmt.Sprintf("--seq-length %d exceeds the %d positions of %s", o.seq, o.model.MaxPositions, o.name)},
		{rate == 1, "--dropout must be below 1, not 1"},
	} {
		if bad.is {
			return o, exitcode.Errorf(exitcode.Usage, "%s", bad.text)
		}
	}
	return o, nil
}

// tableOf is where lines go that are printed while it measures: with --json to stderr.
func tableOf(c *cli.Context) *command.Printer {
	if c.Bool("json") {
		return &command.Printer{W: c.App.ErrWriter}
	}
	return &command.Printer{W: c.App.Writer}
}

func run(c *cli.Context, open func(string) (*device.Device, error), everyShape bool) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	notes := &command.Printer{W: c.App.ErrWriter}
	return command.WithDevice(c, open, func(d *device.Device) error {
		r, err := measure(c.Context, d, o, full, func(what string) { notes.Printf("%s\n", what) })
		if err != nil {
			return err
		}
		out := &command.Printer{W: c.App.Writer}
		if !c.Bool("json") {
			r.print(out, everyShape)
			return out.Err
		}
		out.JSON(r)
		return out.Err
	})
}
