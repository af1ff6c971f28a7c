package shell

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// Version prints a version of the program.
func Version(version string) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "version",
		Usage: "print the version and exit, like COMMAND --version",
		Action: func(c *cli.Context) error {
			if err := command.NoArgs(c); err != nil {
				return err
			}
			return PrintVersion(c, version)
		},
	})
}

// PrintVersion prints its line.
func PrintVersion(c *cli.Context, version string) error {
	_, err := fmt.Fprintln(c.App.Writer, "monotron", version)
	return exitcode.With(exitcode.IO, err)
}
