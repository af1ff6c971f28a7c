// Package flags is the command flags: the table of pretrain_gpt's flags, for people and programs.
package flags

import (
	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/tools/internal/command"
)

const description = `Prints the table of docs/flags.md: each flag's names, values, default and class. With --json it
prints one list with name, aliases, type, default, choices, range, class, group and help of each
flag, from which a program can make command lines that are accepted.

Examples:
  monotron flags --json > flags.json
  monotron flags | grep -i recompute`

// Command is flags.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "flags",
		Usage:       "print every flag of pretrain_gpt with type, range, default and class",
		Description: description,
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON list"}},
		Action:      run,
	})
}

func run(c *cli.Context) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	if c.Bool("json") {
		return exitcode.With(exitcode.IO, arguments.WriteJSON(c.App.Writer))
	}
	_, err := c.App.Writer.Write([]byte(arguments.Markdown()))
	return exitcode.With(exitcode.IO, err)
}
