package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
)

// rankReport is a rank in --json.
type rankReport struct {
	Rank      int              `json:"rank"`
	Peak      int64            `json:"peak_bytes"`
	ByPurpose map[string]int64 `json:"by_purpose"` // most bytes of each, whenever
	At        string           `json:"at"`         // of the peak
	AtPeak    map[string]int64 `json:"at_peak"`    // bytes then
	Reserved  int64            `json:"reserved_bytes"`
	Stored    int64            `json:"stored_bytes,omitempty"` // in files, in the host's memory of a GPU, or in 4 bits
	Scratch   int64            `json:"scratch_bytes"`
	Copies    int64            `json:"memory_checkpoint_bytes,omitempty"` // in the host's memory
}

type memoryReport struct {
	Device  string         `json:"device"`
	Machine string         `json:"machine,omitempty"`
	Fits    *bool          `json:"fits,omitempty"`
	Seconds float64        `json:"seconds_per_step,omitempty"`
	Low     float64        `json:"seconds_low,omitempty"`
	High    float64        `json:"seconds_high,omitempty"`
	TFLOPs  float64        `json:"tflops_per_device,omitempty"`
	MFU     float64        `json:"mfu,omitempty"`
	Waiting float64        `json:"seconds_waiting,omitempty"`
	Eval    float64        `json:"seconds_per_evaluation,omitempty"`
	Saving  float64        `json:"seconds_per_save,omitempty"`
	Days    float64        `json:"days,omitempty"`
	Cost    float64        `json:"cost,omitempty"`
	Failing *goodputReport `json:"with_failures,omitempty"`
	Ranks   []rankReport   `json:"ranks"`
}

func (p *runPlan) report() memoryReport {
	out := memoryReport{Device: p.options.Device}
	if p.machine != nil {
		fits, s := p.fits(), p.seconds
		out.Machine, out.Fits, out.Seconds, out.Low, out.High, out.TFLOPs, out.MFU, out.Waiting = p.machine.Name, &fits, s.Step, s.Low, s.High, s.TFLOPs, s.MFU, s.Waiting
		out.Eval, out.Saving, out.Days, out.Cost = p.extras.Evaluation, p.extras.Saving, p.days(), p.cost()
		out.Failing = p.goodput.report(p)
	}
	for _, r := range p.ranks {
		out.Ranks = append(out.Ranks, rankReport{r.Number, r.Peak, purposes(r.ByPurpose), r.At.String(), purposes(r.AtPeak), r.Reserved, r.Stored, r.Scratch, r.Copies})
	}
	return out
}

// days of the complete training; cost of them, in the price's money.
func (p *runPlan) days() float64 {
	n, err := p.config.Iterations()
	if err != nil {
		return 0
	}
	return (float64(n)*p.seconds.Step + p.extras.Seconds()) / 86400
}

func (p *runPlan) cost() float64 {
	return p.days() * 24 * p.price * float64(p.config.Layout.Sizes().World())
}

// writeTime writes the seconds and where they go.
func (p *runPlan) writeTime(out *command.Printer) {
	s, m := p.seconds, p.machine
	out.Printf("%.4g s a step (%.4g to %.4g: %s), %.1f TFLOP/s a device, MFU %.1f%%\n", s.Step, s.Low, s.High, m.Checked.How, s.TFLOPs, 100*s.MFU)
	out.Printf("  busiest stage: products and attention %.3g s, memory and links inside a node %.3g s, links between nodes %.3g s; waiting for other stages %.3g s; gradients and parameters %.3g s; update %.3g s\n",
		s.Compute, s.Move, s.Between, s.Waiting, s.Gradients, s.Update)
	if n, err := p.config.Iterations(); err == nil {
		out.Printf("  %s for %s", lasting(p.days()), logging.Count(n, "iteration"))
		if b := p.extras; b.Evaluations > 0 {
			out.Printf(" with %s of %.3g s", logging.Count(b.Evaluations, "evaluation"), b.Evaluation)
		}
		if b := p.extras; b.Saves > 0 && b.Saving > 0 {
			out.Printf(", %s of %.3g s", logging.Count(b.Saves, "checkpoint"), b.Saving)
		}
		if p.price > 0 {
			out.Printf(", %s at %g a device-hour", money(p.cost()), p.price)
		}
		out.Printf("\n")
	}
	if p.goodput != nil {
		p.goodput.write(p, out)
	}
}

// verdict is the last line: whether the ranks have the memory, and what is free; an error of
// code 1 where they have not.
func (p *runPlan) verdict(out *command.Printer) error {
	m := p.machine
	need, what := int64(0), "the ranks together need"
	for _, r := range p.ranks {
		switch n := m.Need(r); {
		case m.Threads > 0: // they share the host's memory
			need += n
		case n > need:
			need, what = n, fmt.Sprintf("rank %d needs", r.Number)
		}
	}
	have := int64(m.Memory)
	switch {
	case need > have:
		return exitcode.Errorf(exitcode.Differs, "the run does not fit into memory: %s %s, but %s has %s", what, device.Size(need), m.Name, device.Size(have))
	case !m.HostHas(&p.config, p.ranks):
		return exitcode.Errorf(exitcode.Differs, "the run does not fit into memory: --optimizer-cpu-offload and --memory-checkpoint-interval need more host memory than a node of %s has (%s)", m.Name, device.Size(int64(m.Host)))
	}
	out.Printf("fits: %s %s of the %s of %s, %s free\n", what, device.Size(need), device.Size(have), m.Name, device.Size(have-need))
	return out.Err
}

// lasting is a time in the unit that people count it in.
func lasting(days float64) string {
	for _, u := range []struct {
		days float64
		name string
	}{{365.25, "years"}, {1, "days"}, {1. / 24, "hours"}, {1. / 1440, "minutes"}} {
		if days >= 2*u.days {
			return fmt.Sprintf("%.3g %s", days/u.days, u.name)
		}
	}
	return fmt.Sprintf("%.3g seconds", days*86400)
}

// money is a sum of money, from ten thousand on with a letter for thousands, millions or billions.
func money(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.3gB", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.3gM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.3gk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

// inWords is a number of parameters in the unit that people say it in.
func inWords(n int64) string {
	switch x := float64(n); {
	case x >= 1e9:
		return fmt.Sprintf("%.4g billion", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.4g million", x/1e6)
	}
	return fmt.Sprint(n)
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
	// The model, the layout, the time.
	l := p.config.Layout.Sizes()
	out.Printf("%s parameters in %s on %s (tensor %d, pipeline %d, data %d), device %s\n",
		inWords(p.config.Model.Parameters()), p.config.Precision, logging.Count(l.World(), "rank"), l.TP, l.PP, l.DP, p.options.Device)
	if p.assumed != "" {
		out.Printf("assumed, as not given: %s\n", p.assumed)
	}
	if p.machine != nil {
		p.writeTime(out)
	}
	// Peaks by purpose: ranks in a row that are alike share a line.
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "ranks\tstage\tpeak\t"
	for purpose := range device.Purposes {
		head += purpose.String() + "\t"
	}
	table := &command.Printer{W: t}
	table.Printf("%s  peak in\t\n", head)
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
		table.Err = exitcode.With(exitcode.IO, t.Flush())
	}
	if table.Err != nil {
		return table.Err
	}
	// What is not on the device, and what would save memory there.
	if stored := p.ranks[worst].Stored; stored > 0 {
		where := "the host's memory"
		switch {
		case p.config.OffloadFolder != "":
			where = p.config.OffloadFolder
		case p.config.Adapter.Quantize != "" && !p.config.OptimizerCPUOffload:
			where += ", of weights that are NF4's (--quantize-base)"
		}
		out.Printf("rank %d has %s more in %s\n", worst, device.Size(stored), where)
	}
	if n := p.ranks[worst].Copies; n > 0 {
		out.Printf("rank %d has %s more in the host's memory for memory checkpoints\n", worst, device.Size(n))
	}
	if p.machine != nil && p.fits() { // it needs nothing that costs time
		return out.Err
	}
	for _, s := range plan.InOrder(p.options.Savings(p.config, worst, p.ranks[worst].Peak)) {
		out.Printf("of rank %d's %s, %s\n", worst, device.Size(p.ranks[worst].Peak), s)
	}
	if p.machine == nil {
		out.Printf("give --machine NAME to see whether the run fits into that machine, and how long a step takes\n")
	}
	return out.Err
}

// sameRow: numbers apart, they hold the same.
func sameRow(a, b plan.Rank) bool {
	a.Number = b.Number
	return a == b
}
