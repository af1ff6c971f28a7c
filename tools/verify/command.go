package verify

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/verify/checkpointcase"
	"monotron/tools/verify/datacase"
	"monotron/tools/verify/modelcase"
)

// Command is `verify`. open makes a device by its name; main registers which
// there are.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	c := proveCommand(open)
	c.Subcommands = []*cli.Command{caseCommand(open), mupCommand(open)}
	return &c
}

func caseCommand(open func(string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "case",
		Usage:     "compare the numbers of this program with a recorded reference case and print the largest errors",
		ArgsUsage: "PATH",
		Description: "PATH is a folder with a case.json (a model, or a checkpoint of any format) or a file cases.json (data sets and samplers).\n" +
			"Exit code 0: every number is within the case's tolerance; 1: one is not; 2: the case needs a feature that this version " +
			"does not have; 65, 66: the case is malformed or missing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "compute a model case on this device: auto, cpu, cuda or ref"},
			&cli.StringFlag{Name: "only", Usage: "run only one part of a model case, given by its name (variant, mask, row), or only data cases whose id contains this text"},
			&cli.BoolFlag{Name: "all", Usage: "print every number instead of the worst ten of each group"},
			&cli.BoolFlag{Name: "json", Usage: "print a model case's report as one JSON object"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exitcode.Errorf(exitcode.Usage, "verify case needs one PATH, but has %d", c.NArg())
			}
			path := c.Args().First()
			// The file says what kind of case it is.
			switch {
			case filepath.Base(path) == "cases.json":
				return runData(c, path)
			case checkpointcase.Is(path):
				return runCheckpoint(c, path, open)
			}
			return runModel(c, path, open)
		},
	})
}

func runData(c *cli.Context, path string) error {
	passed, failed, err := datacase.Run(path, c.String("only"), c.App.Writer)
	if err != nil {
		return err
	}
	if passed+failed == 0 {
		return exitcode.Errorf(exitcode.Usage, "%s: there is no case whose id contains %q", path, c.String("only"))
	}
	if _, err := fmt.Fprintf(c.App.Writer, "%d passed, %d failed\n", passed, failed); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if failed > 0 {
		return exitcode.Errorf(exitcode.Differs, "%s: %d cases differ", path, failed)
	}
	return nil
}

// runCheckpoint prints what was compared even where a part could not be.
func runCheckpoint(c *cli.Context, path string, open func(string) (*device.Device, error)) error {
	report, err := checkpointcase.Run(path, func() (*device.Device, error) { return open(c.String("device")) })
	if report == nil {
		return err
	}
	return errors.Join(err, show(c, path, report))
}

func runModel(c *cli.Context, path string, open func(string) (*device.Device, error)) error {
	device := func() (*device.Device, error) { return open(c.String("device")) }
	report, err := modelcase.Run(path, device, modelcase.Options{Only: c.String("only")})
	if err != nil {
		return err
	}
	return show(c, path, report)
}

// show prints a report; a number over its tolerance is an error.
func show(c *cli.Context, path string, report *modelcase.Report) (err error) {
	if c.Bool("json") {
		err = report.WriteJSON(c.App.Writer)
	} else {
		err = report.WriteTable(c.App.Writer, c.Bool("all"))
	}
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if _, failed := report.Counts(); failed > 0 {
		return exitcode.Errorf(exitcode.Differs, "%s on %s: %d numbers differ by more than their tolerance", path, report.Device, failed)
	}
	return nil
}
