// Package inspect is the command inspect: what is in a file, and whether it
// holds together. Each subcommand has a file of its own.
package inspect

import (
	"github.com/urfave/cli/v2"

	"monotron/tools/internal/command"
)

// Command is inspect with its subcommands.
func Command() *cli.Command {
	return &cli.Command{
		Name:        "inspect",
		Usage:       "look inside token files, samples and checkpoints",
		Subcommands: []*cli.Command{Dataset(), Samples(), command.Wrap(checkpointCommand())},
	}
}
