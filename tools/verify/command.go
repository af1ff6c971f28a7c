// Package verify is the command `verify`: it runs cases whose answers other
// programs made and prints the largest error of each number.
package verify

import (
	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/flags"
	"monotron/tools/verify/modelcase"
)

// Command is `verify`. open makes a device by its name; main registers which
// there are.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return &cli.Command{
		Name:        "verify",
		Usage:       "compare this program's numbers with those of other programs",
		Subcommands: []*cli.Command{caseCommand(open)},
	}
}

func caseCommand(open func(string) (*device.Device, error)) *cli.Command {
	return &cli.Command{
		Name:      "case",
		Usage:     "run a case with known answers and print the largest error of each number",
		ArgsUsage: "PATH",
		Description: "PATH is a folder with a case.json. Exit code 0: every number is within the case's tolerance; 1: one is not; " +
			"2: the case needs what this version does not have; 65, 66: the case is malformed or missing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "device that computes: auto, cpu, ref"},
			&cli.StringFlag{Name: "only", Usage: "one part of the case, by its name (a variant, a mask, a row's number)"},
			&cli.BoolFlag{Name: "all", Usage: "print every number, not the worst of each group"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		},
		Action: func(c *cli.Context) error {
			path, err := onePath(c)
			if err != nil {
				return err
			}
			return runModelCase(c, path, open)
		},
	}
}

// onePath is the command's argument. Flags may follow it: urfave/cli leaves
// those among the arguments.
func onePath(c *cli.Context) (string, error) {
	set := flags.Set{"device": flags.One, "only": flags.One, "all": flags.Switch, "json": flags.Switch}
	given, rest, err := flags.Split(set, c.Args().Slice())
	if err != nil {
		return "", err
	}
	for _, g := range given {
		if err := c.Set(g.Name, append(g.Values, "true")[0]); err != nil {
			return "", fault.With(fault.Usage, err)
		}
	}
	if len(rest) != 1 {
		return "", fault.Errorf(fault.Usage, "verify case takes one PATH, found %d", len(rest))
	}
	return rest[0], nil
}

func runModelCase(c *cli.Context, path string, open func(string) (*device.Device, error)) error {
	d, err := open(c.String("device"))
	if err != nil {
		return err
	}
	defer d.Arena.Close()
	report, err := modelcase.Run(path, d, modelcase.Options{Only: c.String("only")})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = report.WriteJSON(c.App.Writer)
	} else {
		err = report.WriteTable(c.App.Writer, c.Bool("all"))
	}
	if err != nil {
		return fault.With(fault.IO, err)
	}
	if _, failed := report.Counts(); failed > 0 {
		return fault.Errorf(fault.Differs, "%s on %s: %d numbers are over their tolerance", report.Case, report.Device, failed)
	}
	return nil
}
