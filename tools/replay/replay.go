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

const description = `FOLDER is what a run with --run-folder has kept of a step whose loss or gradient was not
finite (nonfinite_0000007): weights, optimizer state and batch from before the step, so nothing
else is needed, not even the data. The step runs again on the same layout, with all ranks in this
process. Printed: what the stream between the layers held in the micro-batch that went wrong, on
every rank, and where a value was first not finite.

Exit code 0: it happened again; 1: the step is finite here.

Examples:
  monotron replay runs/7/nonfinite_0000007
  monotron replay runs/7/nonfinite_0000007 --device ref     is it the device?`

// Command is replay; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "replay",
		Usage:       "run a recorded step again, and say where a value becomes not finite",
		ArgsUsage:   "FOLDER",
		Description: description,
		Flags:       []cli.Flag{&cli.StringFlag{Name: "device", Usage: "auto, cpu, cuda or ref (default: the recorded run's)"}},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "which step? Give one folder, such as runs/7/nonfinite_0000007")
			}
			return training.Replay(c.Args().First(), c.String("device"), open, os.Stdout)
		},
	})
}
