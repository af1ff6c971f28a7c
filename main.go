// monotron: a Megatron-style trainer for GPT models. This file names the
// commands and registers the devices; nothing else.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"monotron/fault"
	"monotron/tools/inspect"
	"monotron/tools/merge"
	"monotron/tools/preprocess"
	"monotron/tools/tokenize"
)

func main() {
	app := &cli.App{
		Name:                      "monotron",
		Usage:                     "train GPT models, from a laptop's CPU to a cluster",
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		Commands:                  commands(),
		ExitErrHandler:            func(*cli.Context, error) {}, // one place prints: below
	}
	args := os.Args
	// bin/pretrain_gpt and the like are links to this binary: the link's name is the command.
	if name := filepath.Base(args[0]); app.Command(name) != nil {
		args = append([]string{"monotron", name}, args[1:]...)
	}
	if err := app.Run(args); err != nil {
		fmt.Fprintln(os.Stderr, "monotron:", err)
		os.Exit(int(fault.CodeOf(err)))
	}
}

func commands() []*cli.Command {
	return []*cli.Command{
		preprocess.Command(),
		preprocess.FastCommand(),
		merge.Command(),
		tokenize.Command(),
		inspect.Command(),
	}
}
