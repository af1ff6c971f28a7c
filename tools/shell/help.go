package shell

import (
	"github.com/urfave/cli/v2"

	"monotron/tools/internal/command"
)

// Help has every command print its help as package command does.
func Help() { cli.HelpPrinter = command.PrintHelp }
