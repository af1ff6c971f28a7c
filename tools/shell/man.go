package shell

import (
	"io"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// Man prints the manual page of a program, or of one of its commands with all its flags.
func Man(program func() *cli.App) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "man",
		Usage:     "print the manual page of the program or of one command",
		ArgsUsage: "[COMMAND]",
		Description: `Examples:
  monotron man | man -l -
  monotron man pretrain_gpt > ~/.local/share/man/man1/pretrain_gpt.1`,
		Action: func(c *cli.Context) error {
			// The program's page lists commands without their flags.
			app := program()
			page := *app
			page.Commands = nil
			for _, one := range app.Commands {
				page.Commands = append(page.Commands, &cli.Command{Name: one.Name, Usage: one.Usage, ArgsUsage: one.ArgsUsage})
			}
			// A command's page is that of a program of its own.
			if c.Args().Present() {
				one := app.Command(c.Args().First())
				if one == nil || c.Args().Len() > 1 {
					return exitcode.Errorf(exitcode.Usage, "man accepts the name of one command; monotron --help lists the commands")
				}
				page = cli.App{Name: one.Name, Usage: one.Usage, Description: one.Description, Flags: one.Flags, Commands: one.Subcommands}
			}
			text, err := page.ToManWithSection(1)
			if err == nil {
				_, err = io.WriteString(c.App.Writer, text)
			}
			return exitcode.With(exitcode.IO, err)
		},
	})
}
