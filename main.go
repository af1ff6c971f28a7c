// monotron: a Megatron-style trainer for GPT models. This file names the
// commands and registers the devices; nothing else.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/fault"
	"monotron/flags"
	"monotron/megatron/pretrain"
	"monotron/tools/bench"
	"monotron/tools/convert"
	"monotron/tools/diff"
	"monotron/tools/doctor"
	"monotron/tools/generate"
	"monotron/tools/inspect"
	"monotron/tools/launch"
	"monotron/tools/logits"
	"monotron/tools/merge"
	"monotron/tools/plan"
	"monotron/tools/postmortem"
	"monotron/tools/preprocess"
	"monotron/tools/replay"
	"monotron/tools/tokenize"
	"monotron/tools/traintokenizer"
	"monotron/tools/verify"
)

func main() {
	app := &cli.App{
		Name:                      "monotron",
		Usage:                     "train GPT models, from a laptop's CPU to a cluster",
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		Commands:                  commands(),
		ExitErrHandler:            func(*cli.Context, error) {}, // one place prints: below
		Action:                    noCommand,
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

// noCommand answers a call without a command, or with one that is not there.
func noCommand(c *cli.Context) error {
	if c.Args().Len() == 0 {
		return cli.ShowAppHelp(c)
	}
	set := flags.Set{}
	for _, known := range c.App.Commands {
		set[known.Name] = flags.Switch
	}
	hint := "monotron --help lists them"
	if near := flags.Nearest(set, c.Args().First()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fault.Errorf(fault.Usage, "there is no command %q; %s", c.Args().First(), hint)
}

func commands() []*cli.Command {
	return []*cli.Command{
		pretrain.Command(openDevice),
		preprocess.Command(),
		preprocess.FastCommand(),
		merge.Command(),
		tokenize.Command(),
		traintokenizer.Command(),
		inspect.Command(),
		convert.Command(openDevice),
		diff.Command(),
		generate.Command(openDevice),
		logits.Command(openDevice),
		bench.Command(openDevice),
		doctor.Command(openDevice),
		verify.Command(openDevice),
		launch.Command(),
		plan.Command(),
		postmortem.Command(),
		replay.Command(openDevice),
	}
}

// openDevice makes a device by its --device name. auto is the fastest that
// this build and machine have.
func openDevice(name string) (*device.Device, error) {
	switch name {
	case "ref":
		return ref.Open(), nil
	case "cpu":
		d, err := cpu.Open()
		return d, fault.With(fault.Usage, err)
	case "auto", "":
		if d, err := cpu.Open(); err == nil {
			return d, nil
		}
		return ref.Open(), nil
	case "cuda":
		return nil, fault.Errorf(fault.Usage, "--device cuda: this version has no CUDA kernels yet; use --device cpu")
	}
	return nil, fault.Errorf(fault.Usage, "--device %s is unknown; there are auto, cpu and ref", name)
}
