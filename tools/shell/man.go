package shell

import (
	"io"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// Man prints the manual page of the program, or of one command with all its flags.
func Man() *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "print the manual page of the program or of one command",
		ArgsUsage: "[COMMAND]",
		Description: `monotron man | man -l -
monotron man pretrain_gpt > ~/.local/share/man/man1/pretrain_gpt.1`,
		Action: func(c *cli.Context) error {
			// The program's page lists commands without their flags.
			page := *c.App
			page.Commands = nil
			for _, command := range c.App.Commands {
				page.Commands = append(page.Commands, &cli.Command{Name: command.Name, Usage: command.Usage, ArgsUsage: command.ArgsUsage})
			}
			// A command's page is that of a program of its own.
			if c.Args().Present() {
				command := c.App.Command(c.Args().First())
				if command == nil || c.Args().Len() > 1 {
					return exitcode.Errorf(exitcode.Usage, "man takes the name of one command; monotron --help lists them")
				}
				page = cli.App{Name: command.Name, Usage: command.Usage, Description: command.Description, Flags: command.Flags, Commands: command.Subcommands}
			}
			text, err := page.ToManWithSection(1)
			if err == nil {
				_, err = io.WriteString(c.App.Writer, text)
			}
			return exitcode.With(exitcode.IO, err)
		},
	}
}
