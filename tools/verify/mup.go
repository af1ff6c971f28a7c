package verify

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/verify/coordinates"
)

func mupCommand(open func(string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "mup",
		Usage: "train a small model at several widths and print how much its activations change; with --use-mup the change is about the same at every width",
		Description: "Runs the coordinate check of muP: a Llama of 3 layers takes the same steps at each width. For the output of each layer and for the logits, the\n" +
			"table has the root mean square of their change, and the power of the width with which this change grows. With muP the power is near\n" +
			"0; with --standard it is not.\n" +
			"Exit code 0: every power is within --limit; 1: a power is not.",
		Flags: []cli.Flag{
			command.Between(16, 8192, &cli.IntSliceFlag{Name: "widths", Value: cli.NewIntSlice(64, 128, 256, 512), Usage: "train at these widths, which are ascending multiples of 16; the first one is the base width of muP"}),
			command.Between(1, 1000, &cli.IntFlag{Name: "steps", Value: 4, Usage: "train N steps at each width"}),
			command.Between(1e-9, 10, &cli.Float64Flag{Name: "lr", Value: 0.01, Usage: "set the learning rate at the first width"}),
			command.Between(0, 100, &cli.Float64Flag{Name: "limit", Value: 0.3, Usage: "allow activations to grow or shrink by at most this power of the width"}),
			&cli.BoolFlag{Name: "standard", Usage: "train without muP"},
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "train on this device: auto, cpu, cuda or ref"},
			&cli.BoolFlag{Name: "json", Usage: "print the report as one JSON object"},
		},
		Action: func(c *cli.Context) error { return checkMuP(c, open) },
	})
}

func checkMuP(c *cli.Context, open func(string) (*device.Device, error)) error {
	widths, limit := c.IntSlice("widths"), c.Float64("limit")
	for i, w := range widths {
		if w%16 != 0 || i > 0 && w <= widths[i-1] {
			return exitcode.Errorf(exitcode.Usage, "--widths %v: each width must be a multiple of 16, and larger than the one before", widths)
		}
	}
	if len(widths) < 2 {
		return exitcode.Errorf(exitcode.Usage, "--widths %v: at least two widths are needed", widths)
	}
	r, err := coordinates.Check(coordinates.Options{Widths: widths, Steps: c.Int("steps"), LR: c.Float64("lr"), Standard: c.Bool("standard"),
		Open: func() (*device.Device, error) { return open(c.String("device")) }, OnWidth: func(int) {}})
	if err != nil {
		return err
	}
	if err := printCoordinates(c, r); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if worst := r.Steepest(); !(math.Abs(worst.Slope) <= limit) {
		return exitcode.Errorf(exitcode.Differs, "the change of %s grows as width^%.2f; the power must be at most %g", worst.Name, worst.Slope, limit)
	}
	return nil
}

func printCoordinates(c *cli.Context, r *coordinates.Report) error {
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(r)
	}
	cells := func(first, last string, numbers []string) error {
		line := fmt.Sprintf("%-10s", first)
		for _, n := range numbers {
			line += fmt.Sprintf("%10s", n)
		}
		_, err := fmt.Fprintf(c.App.Writer, "%s%10s\n", line, last)
		return err
	}
	// A column a width, a row a tensor.
	var head []string
	for _, w := range r.Widths {
		head = append(head, fmt.Sprint(w))
	}
	if err := cells("width", "power", head); err != nil {
		return err
	}
	for _, row := range r.Rows {
		numbers := make([]string, 0, len(row.Moved))
		for _, x := range row.Moved {
			numbers = append(numbers, fmt.Sprintf("%.4f", x))
		}
		if err := cells(row.Name, fmt.Sprintf("%+.2f", row.Slope), numbers); err != nil {
			return err
		}
	}
	return nil
}
