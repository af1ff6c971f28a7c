package plan

import (
	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
)

// Command is `plan`.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return &cli.Command{
		Name:            "plan",
		Usage:           "predict memory, time and schedule of a run before it starts",
		HideHelpCommand: true,
		Subcommands:     []*cli.Command{runCommand(open), formulasCommand(open), tableCommand(), scheduleCommand(), searchCommand()},
	}
}
