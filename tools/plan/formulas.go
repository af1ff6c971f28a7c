package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/plan"
	"monotron/megatron/telemetry"
	"monotron/tools/internal/command"
)

func formulasCommand(open func(name string) (*device.Device, error)) *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:        "formulas",
		Usage:       "compare scaling rules of the literature with the numbers of a training run",
		ArgsUsage:   "pretrain_gpt FLAGS...",
		Description: "Prints formulas of papers for parameters, operations, bytes and pipeline bubble, each with its source and its difference from the numbers of this program for the same flags.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON list"}},
		Action:      func(c *cli.Context) error { return planFormulas(c, open) },
	})
}

type formulaReport struct {
	Name    string           `json:"name"`
	Formula string           `json:"formula"`
	Source  string           `json:"source"`
	Unit    string           `json:"unit,omitempty"`
	Value   telemetry.Number `json:"value"`
	Exact   telemetry.Number `json:"exact"` // null: this program has no such number
	Off     telemetry.Number `json:"off"`   // value/exact - 1
}

func planFormulas(c *cli.Context, open func(name string) (*device.Device, error)) error {
	// The run's memory by counting, and by the formulas.
	p, err := newRunPlan(c.Args().Slice(), nil, open)
	if err != nil {
		return err
	}
	defer p.close()
	if p.ranks, err = plan.Memory(p.config, p.options); err != nil {
		return err
	}
	all, err := plan.Compare(&p.config, plan.Largest(p.ranks))
	if err != nil {
		return err
	}
	// One object, or a table.
	if c.Bool("json") {
		var list []formulaReport
		for _, f := range all {
			list = append(list, formulaReport{f.Name, f.Text, f.Source, f.Unit, telemetry.Number(f.Value), telemetry.Number(f.Exact), telemetry.Number(f.Off())})
		}
		return exitcode.With(exitcode.IO, json.NewEncoder(c.App.Writer).Encode(list))
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	out := &command.Printer{W: t}
	out.Printf("what\tformula\tsays\there\toff\tsource\n")
	for _, f := range all {
		off := "-"
		if !math.IsNaN(f.Off()) {
			off = fmt.Sprintf("%+.1f%%", 100*f.Off())
		}
		out.Printf("%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, f.Text, quantity(f.Value, f.Unit), quantity(f.Exact, f.Unit), off, f.Source)
	}
	if out.Err == nil {
		out.Err = exitcode.With(exitcode.IO, t.Flush())
	}
	return out.Err
}

// quantity writes a number of a formula for a person.
func quantity(x float64, unit string) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case unit == "B":
		return device.Size(int64(x))
	}
	return fmt.Sprintf("%.4g%s", x, map[bool]string{true: " " + unit}[unit != ""])
}
