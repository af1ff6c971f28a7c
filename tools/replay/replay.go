// Package replay is the command replay: runs a recorded step again.
package replay

import (
	"os"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/training"
	"monotron/tools/internal/command"
)

const description = `FOLDER is the record that a run with --run-folder writes of a step whose loss or gradient was not
finite (nonfinite_0000007): weights, optimizer state and batch before the step. Nothing else is
needed, not even the data. The step runs again on the same layout, with all ranks in this process.
Prints the residual stream between the layers of the failing micro-batch, on every rank, and where
a value first was NaN or infinite.

Exit code 0: the step was again not finite; 1: the repeated step is finite.

Examples:
  monotron replay runs/7/nonfinite_0000007
  monotron replay runs/7/nonfinite_0000007 --device ref     on the reference device`

// Command is replay; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "replay",
		Usage:       "repeat a recorded step and find where a value becomes NaN or infinite",
		ArgsUsage:   "FOLDER",
		Description: description,
		Flags:       []cli.Flag{&cli.StringFlag{Name: "device", Usage: "compute on this device: auto, cpu, cuda or ref (default: the recorded run's)"}},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "replay needs one FOLDER, the record of a step, such as runs/7/nonfinite_0000007, but has %d arguments", c.Args().Len())
			}
			return training.Replay(c.Args().First(), c.String("device"), open, os.Stdout)
		},
	})
}
