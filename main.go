// monotron: a Megatron-style trainer for GPT models. This file names the
// commands and registers the devices; nothing else.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"monotron/csrc/cpu"
	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/csrc/ref"
	_ "monotron/csrc/start" // looks at the process's limits
	"monotron/fault"
	"monotron/flags"
	"monotron/megatron/pretrain"
	"monotron/mpu/comm/launched"
	"monotron/notes"
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
	app := newApp()
	args := os.Args
	// bin/pretrain_gpt and the like are links to this binary: the link's name is the command.
	if name := filepath.Base(args[0]); app.Command(name) != nil {
		args = append([]string{"monotron", name}, args[1:]...)
	}
	if err := app.Run(args); err != nil {
		launched.Farewell(err)
		os.Exit(int(fault.CodeOf(err)))
	}
}

func newApp() *cli.App {
	app := &cli.App{
		Name:                      "monotron",
		Usage:                     "train GPT models, from a laptop's CPU to a cluster",
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		Commands:                  commands(),
		ExitErrHandler:            func(*cli.Context, error) {}, // one place prints: below
		Action:                    noCommand,
	}
	for _, c := range app.Commands {
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action = noCommand
		}
	}
	return app
}

// noCommand answers a call without a command, or with one that is not there, of
// monotron itself or of a command that has others under it.
func noCommand(c *cli.Context) error {
	known, path := c.App.Commands, "monotron"
	if c.Command.Name != c.App.Name {
		known, path = c.Command.Subcommands, "monotron "+c.Command.Name
	}
	if c.Args().Len() == 0 {
		return cli.ShowSubcommandHelp(c)
	}
	set := flags.Set{}
	for _, k := range known {
		set[k.Name] = flags.Switch
	}
	hint := path + " --help lists them"
	if near := flags.Nearest(set, c.Args().First()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fault.Errorf(fault.Usage, "%s has no command %q; %s", path, c.Args().First(), hint)
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
		d, err := cuda.Open(localRank())
		if err == nil {
			return d, nil
		}
		if err := without(err); err != nil {
			return nil, err
		}
		if d, err := cpu.Open(); err == nil {
			return d, nil
		}
		return ref.Open(), nil
	case "cuda":
		if err := seated(); err != nil {
			return nil, err
		}
		d, err := cuda.Open(localRank())
		return d, fault.With(fault.Usage, err)
	}
	return nil, fault.Errorf(fault.Usage, "--device %s is unknown; there are auto, cuda, cpu and ref", name)
}

// without lets auto go on without a GPU, and says why where there is a library for one. Not
// where other ranks of this host have theirs: one slow rank holds up all.
func without(why error) error {
	rank := localRank()
	if rank > 0 {
		if first, err := cuda.Open(0); err == nil {
			first.Close()
			return fault.Errorf(fault.Usage, "--device auto: rank 0 of this host has a GPU, rank %d has none: %w for all", rank, why)
		}
	}
	if rank == 0 && cuda.Wanted() {
		told.Do(func() { notes.Stderr().From("device").Warn("device auto: %v", why) })
	}
	return nil
}

var told sync.Once

// localRank is the GPU of this process: its number among those of the host, or
// the one that its launcher left visible.
func localRank() int {
	if shown := os.Getenv("CUDA_VISIBLE_DEVICES"); shown != "" && !strings.Contains(shown, ",") {
		return 0
	}
	if p, err := launched.Find(os.Getenv); err == nil && p != nil {
		return p.Local
	}
	return 0
}

// seated says when this host's ranks outnumber the GPUs that are visible. Where the
// driver cannot be asked, opening the device says more.
func seated() error {
	p, err := launched.Find(os.Getenv)
	s, unknown := gpus.Look()
	if err != nil || unknown != nil || p == nil {
		return err
	}
	value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	shown := gpus.Environment{Value: value, Set: set}
	if visible, err := s.Visible(shown); err == nil && len(visible) == 1 && p.LocalSize > 1 && len(s.GPUs) >= p.LocalSize {
		return nil // the launcher has left each rank its own
	}
	_, err = s.Seat(shown, p.Local, p.LocalSize)
	return err
}
