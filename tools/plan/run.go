package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/arguments"
	"monotron/megatron/estimate"
	"monotron/megatron/training"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

func runCommand(open func(name string) (*device.Device, error)) *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:      "run",
		Usage:     "what every rank of a training run will hold in memory",
		ArgsUsage: "pretrain_gpt FLAGS...",
		Description: "FLAGS are the training command's own, with --world-size for the number of ranks. Set-up and steps of one rank of each " +
			"kind are run with no memory behind them: the bytes are the run's. Neither data nor weights are read.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object, with every rank"},
		},
		Action: func(c *cli.Context) error { return planRun(c, open) },
	})
}

func planRun(c *cli.Context, open func(name string) (*device.Device, error)) error {
	p, err := newRunPlan(c.Args().Slice(), open)
	if err != nil {
		return err
	}
	if p.options.Beside != nil {
		defer p.options.Beside.Close()
	}
	if p.ranks, err = estimate.Memory(p.config, p.options); err != nil {
		return err
	}
	if c.Bool("json") {
		return fault.With(fault.IO, json.NewEncoder(c.App.Writer).Encode(p.report()))
	}
	return p.write(&command.Printer{W: c.App.Writer})
}

// runPlan is a training run on paper.
type runPlan struct {
	config  training.Config
	options estimate.Options
	ranks   []estimate.Rank
}

func newRunPlan(args []string, open func(name string) (*device.Device, error)) (*runPlan, error) {
	if len(args) == 0 || args[0] != "pretrain_gpt" {
		return nil, fault.Errorf(fault.Usage, "say what is planned: plan run pretrain_gpt FLAGS..., the training command as it will be typed")
	}
	config, report, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, CheckpointValues: training.CheckpointFlags}, args[1:])
	if err != nil {
		return nil, err
	}
	if report.Help {
		return nil, fault.Errorf(fault.Usage, "pretrain_gpt --help lists its flags")
	}
	p := &runPlan{config: config}
	if err := p.vocabulary(); err != nil {
		return nil, err
	}
	return p, p.device(open)
}

// vocabulary is the tokenizer's where its files are here, else --vocab-size.
func (p *runPlan) vocabulary() error {
	tok, err := tokenizer.FromConfig(p.config.Tokenizer)
	switch size := p.config.Tokenizer.VocabSize; {
	case err == nil:
		return p.config.SetVocab(tok.VocabSize())
	case size > 0:
		return p.config.SetVocab(size)
	}
	return fmt.Errorf("%w; where the files are not at hand, --vocab-size says how many ids there are", err)
}

// device is that of --device; one that this machine lacks is counted all the same.
func (p *runPlan) device(open func(name string) (*device.Device, error)) error {
	d, err := open(p.config.Device)
	if err != nil && p.config.Device != "cuda" {
		return err
	}
	p.options.Device = p.config.Device
	if err == nil {
		p.options.Device, p.options.Beside = d.Name, d
	}
	return nil
}

// rankReport is a rank in --json.
type rankReport struct {
	Rank      int              `json:"rank"`
	Peak      int64            `json:"peak_bytes"`
	ByPurpose map[string]int64 `json:"by_purpose"` // most bytes of each, whenever
	At        string           `json:"at"`         // of the peak
	AtPeak    map[string]int64 `json:"at_peak"`    // bytes then
	Reserved  int64            `json:"reserved_bytes"`
	Scratch   int64            `json:"scratch_bytes"`
}

type memoryReport struct {
	Device string       `json:"device"`
	Ranks  []rankReport `json:"ranks"`
}

func (p *runPlan) report() memoryReport {
	out := memoryReport{Device: p.options.Device}
	for _, r := range p.ranks {
		out.Ranks = append(out.Ranks, rankReport{r.Number, r.Peak, purposes(r.ByPurpose), r.At.String(), purposes(r.AtPeak), r.Reserved, r.Scratch})
	}
	return out
}

func purposes(bytes [device.Purposes]int64) map[string]int64 {
	all := map[string]int64{}
	for p := range device.Purposes {
		all[strings.ReplaceAll(p.String(), " ", "_")] = bytes[p]
	}
	return all
}

// write is a row for ranks in a row that hold the same.
func (p *runPlan) write(out *command.Printer) error {
	l := p.config.Layout.Sizes()
	out.Printf("%.4g billion parameters in %s on %d ranks (tensor %d, pipeline %d, data %d), device %s\n",
		float64(p.config.Model.Parameters())/1e9, p.config.Precision, l.World(), l.TP, l.PP, l.DP, p.options.Device)
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "ranks\tstage\tpeak\t"
	for purpose := range device.Purposes {
		head += purpose.String() + "\t"
	}
	table := &command.Printer{W: t}
	table.Printf("%s  most is held in\t\n", head)
	worst := 0
	for i := 0; i < len(p.ranks); {
		first, last := p.ranks[i], i
		for last+1 < len(p.ranks) && sameRow(p.ranks[last+1], first) && l.At(last+1).PP == l.At(i).PP {
			last++
		}
		name := fmt.Sprint(i)
		if last > i {
			name = fmt.Sprintf("%d-%d", i, last)
		}
		table.Printf("%s\t%d\t%s\t", name, l.At(i).PP, device.Size(first.Peak))
		for _, bytes := range first.AtPeak {
			table.Printf("%s\t", device.Size(bytes))
		}
		table.Printf("  %s\t\n", first.At)
		if first.Peak > p.ranks[worst].Peak {
			worst = i
		}
		i = last + 1
	}
	if table.Err == nil {
		table.Err = fault.With(fault.IO, t.Flush())
	}
	if table.Err != nil {
		return table.Err
	}
	for _, s := range p.options.Savings(p.config, worst, p.ranks[worst].Peak) {
		out.Printf("of rank %d's %s, %s\n", worst, device.Size(p.ranks[worst].Peak), s)
	}
	return out.Err
}

// sameRow: numbers apart, they hold the same.
func sameRow(a, b estimate.Rank) bool {
	a.Number = b.Number
	return a == b
}
