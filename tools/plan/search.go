package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
)

func searchCommand() *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:      "search",
		Usage:     "find the fastest layouts of a model that fit on a machine",
		ArgsUsage: "MODEL FLAGS...",
		Description: "FLAGS are the flags of pretrain_gpt for the model (or --model NAME) and its training (including --global-batch-size), without the layout; those for the data, the length of the training and the learning rate may be left out. Every layout that training " +
			"accepts is timed, over tensor and pipeline sizes, chunks, sharding, recomputation and micro-batch size; for the fastest ones memory is computed to the byte and the schedule is simulated.",
		Flags: []cli.Flag{
			command.Between(1, 1<<16, &cli.IntFlag{Name: "gpus", Usage: "use N devices"}),
			&cli.StringFlag{Name: "machine", Usage: "use this machine file, or one of " + strings.Join(plan.Machines(), ", ")},
			&cli.StringFlag{Name: "memory", Usage: "`SIZE`: set the memory of a device, as in 78GiB (default: the machine's)"},
			command.Between(1, 100, &cli.IntFlag{Name: "best", Value: 10, Usage: "print N layouts"}),
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		},
		Action: planSearch,
	})
}

type foundReport struct {
	Seconds float64 `json:"seconds_per_step"`
	Low     float64 `json:"seconds_low"`
	High    float64 `json:"seconds_high"`
	TFLOPs  float64 `json:"tflops_per_device"`
	Peak    int64   `json:"peak_bytes"`
	Flags   string  `json:"flags"`
}

type searchReport struct {
	Tried   int           `json:"layouts"`
	Small   int           `json:"too_large_by_a_bound"` // of their state and activations
	Counted int           `json:"counted_to_the_byte"`
	Seconds float64       `json:"search_seconds"`
	Best    []foundReport `json:"best"`
	Front   []foundReport `json:"front"`
	Rules   []string      `json:"rules"`
}

func planSearch(c *cli.Context) error {
	s, err := newSearch(c)
	if err != nil {
		return err
	}
	start := time.Now()
	// The layouts, or why there is none.
	best, front, err := s.Run(c.Int("best"))
	if err != nil {
		return err
	}
	took := time.Since(start)
	if len(best) == 0 {
		return exitcode.Errorf(exitcode.Usage, "no layout of %d devices fits into %s: %d legal layouts were checked (for %d of them, a lower bound of state and activations is already too large); use more devices, or a smaller model or batch",
			s.Devices, device.Size(s.Memory), s.Tried, s.Small)
	}
	if c.Bool("json") {
		r := searchReport{Tried: s.Tried, Small: s.Small, Counted: s.Counted, Seconds: took.Seconds(), Best: founds(best), Front: founds(front), Rules: rules(s, best)}
		return exitcode.With(exitcode.IO, json.NewEncoder(c.App.Writer).Encode(r))
	}
	// How many were tried, the fastest, and those that trade time for memory.
	out := &command.Printer{W: c.App.Writer}
	out.Printf("%d layouts in %.1f s (%.0f a second), %d of them are too large by a lower bound, the others were timed, and the memory of %d was computed to the byte; the fastest that fit %s (%s):\n", s.Tried, took.Seconds(), float64(s.Tried)/took.Seconds(), s.Small, s.Counted, device.Size(s.Memory), s.Machine.Checked.How)
	if err := writeFound(out, best); err != nil {
		return err
	}
	out.Printf("layouts that need less memory but more time:\n")
	if err := writeFound(out, front); err != nil {
		return err
	}
	for _, line := range rules(s, best) {
		out.Printf("%s\n", line)
	}
	out.Printf("\npretrain_gpt %s %s\n", argv.Line(s.Flags...), best[0].Line())
	return out.Err
}

func newSearch(c *cli.Context) (*plan.Search, error) {
	var lacking []string
	if c.Int("gpus") == 0 {
		lacking = append(lacking, "--gpus, the number of devices, from 1 to 65536")
	}
	if c.String("machine") == "" {
		lacking = append(lacking, "--machine, a machine file or one of "+strings.Join(plan.Machines(), ", "))
	}
	if len(lacking) > 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "plan search needs %s; monotron plan search --help shows an example", strings.Join(lacking, "; and "))
	}
	// The machine and its memory.
	m, err := plan.ReadMachine(c.String("machine"))
	if err != nil {
		return nil, err
	}
	// The model and the batch; the layout is what is searched for.
	flags := c.Args().Slice()
	if len(flags) > 0 && flags[0] == "pretrain_gpt" {
		flags = flags[1:]
	}
	flags = folders(flags)
	known := &shapes{}
	s := &plan.Search{Machine: m, Devices: c.Int("gpus"), Memory: int64(m.Memory), Flags: flags, Shapes: known.options()}
	if c.String("memory") != "" {
		if s.Memory, err = plan.ParseBytes(c.String("memory")); err != nil {
			return nil, fmt.Errorf("--memory: %w", err)
		}
	}
	partial := known.options()
	partial.ModelOnly, partial.Partial = true, true
	config, report, err := arguments.ParseWith(partial, flags)
	if err != nil {
		return nil, err
	}
	s.Filled = slices.Concat(length(&config, report), free(&config, report))
	if missing := missing(&config); len(missing) > 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "plan search needs the flags of the model and the batch; add %s, or --model NAME for the shape of a known model", argv.And(missing...))
	}
	if err := known.setVocab(&config, report); err != nil {
		return nil, err
	}
	s.Vocab = config.Model.VocabSize
	return s, nil
}

// missing are the flags of model and batch that a search needs and c lacks.
func missing(c *config.Run) (names []string) {
	for _, f := range []struct {
		name  string
		value int
	}{{"--num-layers", c.Model.NumLayers}, {"--hidden-size", c.Model.HiddenSize}, {"--num-attention-heads", c.Model.NumAttentionHeads},
		{"--seq-length", max(c.SeqLength, c.Model.Context, c.Model.MaxPositions)}, {"--global-batch-size", c.GlobalBatchSize}} {
		if f.value < 1 {
			names = append(names, f.name)
		}
	}
	return names
}

func founds(list []*plan.Found) (all []foundReport) {
	for _, f := range list {
		all = append(all, foundReport{f.Step.Step, f.Step.Low, f.Step.High, f.Step.TFLOPs, f.Memory, f.Line()})
	}
	return all
}

func writeFound(out *command.Printer, list []*plan.Found) error {
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', 0)
	table := &command.Printer{W: t}
	table.Printf("  s a step\tTFLOP/s\tmemory\twaiting\tflags\n")
	for _, f := range list {
		table.Printf("  %.4g\t%.1f\t%s\t%.1f%%\t%s\n", f.Step.Step, f.Step.TFLOPs, device.Size(f.Memory), 100*f.Step.Waiting/f.Step.Step, f.Line())
	}
	if table.Err == nil {
		table.Err = exitcode.With(exitcode.IO, t.Flush())
	}
	return table.Err
}

// rules says of the usual rules of choosing a layout whether they hold here.
func rules(s *plan.Search, best []*plan.Found) (lines []string) {
	if len(best) == 0 {
		return nil
	}
	c := &best[0].Config
	each, width := 18.0, "18"
	if c.Precision == config.F32 {
		each, width = 16, "16"
	}
	n, memory := float64(c.Model.Parameters()), float64(s.Memory)
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	if full := n * each; full < memory {
		say("the rule \"use only data parallelism if the model fits on one device\" applies: weights, gradients and optimizer take %.1f of %.1f GiB", full/(1<<30), memory/(1<<30))
	} else {
		say("the rule \"shard or divide a model that does not fit on one device\" applies: with %s bytes per parameter, the model needs %.0f devices", width, math.Ceil(full/memory))
	}
	layer := float64(c.Model.LayerParameters(0)) * each
	if layer > memory {
		say("the rule \"use tensor parallelism if the largest layer does not fit\" applies: the layer takes %.1f GiB, but a device has %.1f", layer/(1<<30), memory/(1<<30))
	} else {
		say("the rule \"use tensor parallelism if the largest layer does not fit\" does not apply: a layer takes %.2f GiB", layer/(1<<30))
	}
	ratio := s.Machine.Node.Rate / (s.Machine.Between.Rate / float64(s.Machine.PerNode))
	say("the rule \"keep tensor parallelism inside a node if links between nodes are slow\": for a device these links are %.1f times slower, and the fastest layout has tensor-parallel size %d on nodes of %d devices",
		ratio, best[0].Config.Layout.Sizes().TP, s.Machine.PerNode)
	return lines
}
