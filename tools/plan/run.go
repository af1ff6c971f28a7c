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
	"monotron/tools/plan/timeline"
	"monotron/whole"
)

func runCommand(open func(name string) (*device.Device, error)) *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:      "run",
		Usage:     "what every rank of a training run will hold in memory",
		ArgsUsage: "pretrain_gpt FLAGS...",
		Description: "FLAGS are the training command's own, with --world-size for the number of ranks. Set-up and steps of one rank of each " +
			"kind are run with no memory behind them: the bytes are the run's. Neither data nor weights are read.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "machine", Usage: "plan for a machine file, or one of " + strings.Join(estimate.Machines(), ", ") + ": seconds, and whether it fits"},
			command.Between(0, 10, &cli.Float64Flag{Name: "jitter", Usage: "fraction by which the slowest device is slower than the others"}),
			command.Between(0, 1e6, &cli.Float64Flag{Name: "price", Usage: "of a device for an hour: what the training costs"}),
			&cli.StringFlag{Name: "svg", Usage: "with --machine: write the step's timeline to this file, as a picture"},
			&cli.StringFlag{Name: "trace", Usage: "the same for chrome://tracing and Perfetto"},
			&cli.BoolFlag{Name: "timeline", Usage: "the same as text"},
			&cli.BoolFlag{Name: "experts-at-most", Usage: "count each rank as if every token chose its experts, as many as a token can; without it tokens choose evenly"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object, with every rank"},
		},
		Action: func(c *cli.Context) error { return planRun(c, open) },
	})
}

func planRun(c *cli.Context, open func(name string) (*device.Device, error)) error {
	m, err := machineOf(c)
	if err != nil {
		return err
	}
	p, err := newRunPlan(c.Args().Slice(), m, open)
	if err != nil {
		return err
	}
	defer p.close()
	if p.options.Most = c.Bool("experts-at-most"); p.options.Most && p.config.Model.Experts == nil {
		return fault.Errorf(fault.Usage, "--experts-at-most is about mixtures of experts: give --num-experts, or leave it out")
	}
	if p.ranks, err = estimate.Memory(p.config, p.options); err != nil {
		return err
	}
	if err := p.time(c); err != nil {
		return err
	}
	if err := p.draw(c); err != nil {
		return err
	}
	if c.Bool("json") {
		return fault.With(fault.IO, json.NewEncoder(c.App.Writer).Encode(p.report()))
	}
	out := &command.Printer{W: c.App.Writer}
	if err := p.write(out); err != nil {
		return err
	}
	if c.Bool("timeline") {
		out.Printf("\n%s", p.chart.Text(100))
	}
	return out.Err
}

// runPlan is a training run on paper.
type runPlan struct {
	config  training.Config
	options estimate.Options
	machine *estimate.Machine // nil: the one that it is planned on, of which no speeds are known
	ranks   []estimate.Rank
	seconds *estimate.Seconds // nil: no machine
	beside  estimate.Beside
	chart   *timeline.Chart // nil: nobody wants a timeline
	price   float64
}

// machineOf is that of --machine; nil: none.
func machineOf(c *cli.Context) (*estimate.Machine, error) {
	if c.String("machine") == "" {
		for _, name := range []string{"jitter", "price", "svg", "trace", "timeline"} {
			if c.IsSet(name) {
				return nil, fault.Errorf(fault.Usage, "--%s needs --machine, which says how fast devices are", name)
			}
		}
		return nil, nil
	}
	return estimate.ReadMachine(c.String("machine"))
}

// time is the step's seconds on the machine.
func (p *runPlan) time(c *cli.Context) error {
	if p.machine == nil {
		return nil
	}
	clock, err := estimate.NewClock(p.config, p.machine)
	if err != nil {
		return err
	}
	by := p.machine.ConstantsOf("")
	by.Compute, by.Move = by.Compute*(1+c.Float64("jitter")), by.Move*(1+c.Float64("jitter"))
	if p.seconds, err = clock.Run(by); err != nil {
		return err
	}
	if p.beside, err = clock.Beside(by); err != nil {
		return err
	}
	if p.price = c.Float64("price"); c.String("svg") == "" && c.String("trace") == "" && !c.Bool("timeline") {
		return nil
	}
	parts, err := p.config.Split().Parts()
	if err != nil {
		return err
	}
	s := p.config.Schedule(p.config.GlobalBatchSize/max(1, p.config.MicroBatchSize*p.config.Layout.Sizes().DP), false)
	if n := float64(s.Stages) * float64(s.Chunks) * float64(s.Micros); n > most {
		return fault.Errorf(fault.Usage, "%.0f forwards are too many to draw, %d can be: lower --global-batch-size for the picture", n, most)
	}
	line, err := clock.Timeline(by)
	p.chart = &timeline.Chart{Line: line, Parts: parts}
	return err
}

// draw writes the timeline's files.
func (p *runPlan) draw(c *cli.Context) error {
	for _, f := range []struct {
		flag string
		make func() []byte
	}{{"svg", func() []byte { return p.chart.SVG() }},
		{"trace", func() []byte {
			return p.chart.Trace([]timeline.After{{Name: "gradients", Seconds: p.seconds.Gradients}, {Name: "update", Seconds: p.seconds.Update}})
		}}} {
		if path := c.String(f.flag); path != "" {
			if err := whole.WriteFile(path, 0o666, f.make()); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits tells whether every rank has the memory.
func (p *runPlan) fits() bool {
	return p.machine == nil || p.machine.Has(p.ranks) && p.machine.HostHas(&p.config, p.ranks)
}

// machine may be nil.
func newRunPlan(args []string, machine *estimate.Machine, open func(name string) (*device.Device, error)) (*runPlan, error) {
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
	p := &runPlan{config: config, machine: machine}
	if err := p.vocabulary(); err != nil {
		return nil, err
	}
	if machine != nil && (config.Device == "auto" || config.Device == machine.Device) {
		p.options.Device = machine.Device
		return p, nil
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

func (p *runPlan) close() {
	if p.options.Beside != nil {
		p.options.Beside.Close()
	}
}

// rankReport is a rank in --json.
type rankReport struct {
	Rank      int              `json:"rank"`
	Peak      int64            `json:"peak_bytes"`
	ByPurpose map[string]int64 `json:"by_purpose"` // most bytes of each, whenever
	At        string           `json:"at"`         // of the peak
	AtPeak    map[string]int64 `json:"at_peak"`    // bytes then
	Reserved  int64            `json:"reserved_bytes"`
	Stored    int64            `json:"stored_bytes,omitempty"` // in files, or in the host's memory beside a GPU
	Scratch   int64            `json:"scratch_bytes"`
}

type memoryReport struct {
	Device  string       `json:"device"`
	Machine string       `json:"machine,omitempty"`
	Fits    *bool        `json:"fits,omitempty"`
	Seconds float64      `json:"seconds_per_step,omitempty"`
	Low     float64      `json:"seconds_low,omitempty"`
	High    float64      `json:"seconds_high,omitempty"`
	TFLOPs  float64      `json:"tflops_per_device,omitempty"`
	MFU     float64      `json:"mfu,omitempty"`
	Waiting float64      `json:"seconds_waiting,omitempty"`
	Eval    float64      `json:"seconds_per_evaluation,omitempty"`
	Saving  float64      `json:"seconds_per_save,omitempty"`
	Days    float64      `json:"days,omitempty"`
	Cost    float64      `json:"cost,omitempty"`
	Ranks   []rankReport `json:"ranks"`
}

func (p *runPlan) report() memoryReport {
	out := memoryReport{Device: p.options.Device}
	if p.machine != nil {
		fits, s := p.fits(), p.seconds
		out.Machine, out.Fits, out.Seconds, out.Low, out.High, out.TFLOPs, out.MFU, out.Waiting = p.machine.Name, &fits, s.Step, s.Low, s.High, s.TFLOPs, s.MFU, s.Waiting
		out.Eval, out.Saving, out.Days, out.Cost = p.beside.Evaluation, p.beside.Saving, p.days(), p.cost()
	}
	for _, r := range p.ranks {
		out.Ranks = append(out.Ranks, rankReport{r.Number, r.Peak, purposes(r.ByPurpose), r.At.String(), purposes(r.AtPeak), r.Reserved, r.Stored, r.Scratch})
	}
	return out
}

// days of the whole training; cost of them, in the price's money.
func (p *runPlan) days() float64 {
	n, err := p.config.Iterations()
	if err != nil {
		return 0
	}
	return (float64(n)*p.seconds.Step + p.beside.Seconds()) / 86400
}

func (p *runPlan) cost() float64 {
	return p.days() * 24 * p.price * float64(p.config.Layout.Sizes().World())
}

// writeTime tells the seconds and where they go.
func (p *runPlan) writeTime(out *command.Printer) {
	s, m := p.seconds, p.machine
	out.Printf("%.4g s a step (%.4g to %.4g: %s), %.1f TFLOP/s a device, MFU %.1f%%\n", s.Step, s.Low, s.High, m.Checked.How, s.TFLOPs, 100*s.MFU)
	out.Printf("  busiest stage: products and attention %.3g s, memory and links inside a node %.3g s, links between nodes %.3g s; waiting for other stages %.3g s; gradients and parameters %.3g s; update %.3g s\n",
		s.Compute, s.Move, s.Between, s.Waiting, s.Gradients, s.Update)
	if n, err := p.config.Iterations(); err == nil {
		out.Printf("  %.3g days for %d iterations", p.days(), n)
		if b := p.beside; b.Evaluations > 0 {
			out.Printf(" with %d evaluations of %.3g s", b.Evaluations, b.Evaluation)
		}
		if b := p.beside; b.Saves > 0 && b.Saving > 0 {
			out.Printf(", %d checkpoints of %.3g s", b.Saves, b.Saving)
		}
		if p.price > 0 {
			out.Printf(", %.0f at %g a device-hour", p.cost(), p.price)
		}
		out.Printf("\n")
	}
	if !m.HostHas(&p.config, p.ranks) {
		out.Printf("  it does not fit: --optimizer-cpu-offload puts more into a node's memory than the %s that those of %s have\n", device.Size(int64(m.Host)), m.Name)
	}
	if !m.Has(p.ranks) {
		whose := "a device of"
		if m.Threads > 0 {
			whose = "the ranks share what is free on"
		}
		out.Printf("  it does not fit: %s %s has %s\n", whose, m.Name, device.Size(int64(m.Memory)))
	}
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
	if p.machine != nil {
		p.writeTime(out)
	}
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
	if stored := p.ranks[worst].Stored; stored > 0 {
		where := "the host's memory"
		if p.config.OffloadFolder != "" {
			where = p.config.OffloadFolder
		}
		out.Printf("rank %d has %s more in %s\n", worst, device.Size(stored), where)
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
