package inspect

import (
	"github.com/urfave/cli/v2"

	"monotron/tools/internal/command"
)

// Command is inspect with its subcommands.
func Command() *cli.Command {
	return &cli.Command{
		Name:        "inspect",
		Usage:       "show the contents of token files, samples and checkpoints",
		Subcommands: []*cli.Command{Dataset(), Samples(), command.Wrap(checkpointCommand())},
	}
}
