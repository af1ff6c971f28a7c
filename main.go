// monotron: a Megatron-style trainer for GPT models. This file names the
// commands, registers the devices, and turns a command's error into the exit code.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"monotron/csrc/cpu"
	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	_ "monotron/csrc/start" // reads the process's limits
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/pretrain"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/ranks/devices"
	"monotron/tools/bench"
	"monotron/tools/chat"
	"monotron/tools/convert"
	"monotron/tools/diff"
	"monotron/tools/doctor"
	"monotron/tools/finetune"
	"monotron/tools/flags"
	"monotron/tools/generate"
	"monotron/tools/inspect"
	"monotron/tools/launch"
	"monotron/tools/logits"
	"monotron/tools/measure"
	"monotron/tools/merge"
	"monotron/tools/plan"
	"monotron/tools/postmortem"
	"monotron/tools/preprocess"
	"monotron/tools/replay"
	"monotron/tools/report"
	"monotron/tools/serve"
	"monotron/tools/shell"
	"monotron/tools/tokenize"
	"monotron/tools/traintokenizer"
	"monotron/tools/verify"
)

func main() {
	go endOnQuit()
	app := newApp()
	args := os.Args
	// bin/pretrain_gpt and the like are links to this binary: the link's name is the command.
	if name := filepath.Base(args[0]); app.Command(name) != nil {
		args = append([]string{"monotron", name}, args[1:]...)
	}
	args = rewritten(app, args)
	out := &output{to: os.Stdout}
	app.Writer = out
	err := app.Run(args)
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = exitcode.Errorf(exitcode.IO, "writing to standard output: %w", out.err)
	}
	if err != nil {
		launchenv.Farewell(err)
		os.Exit(int(exitcode.CodeOf(err)))
	}
}

// endOnQuit ends the process at SIGQUIT with one line, as other signals do that save nothing, in place of the stacks of
// all goroutines, which GOTRACEBACK asks for.
func endOnQuit() {
	if os.Getenv("GOTRACEBACK") != "" {
		return
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	<-quit
	code := 128 + exitcode.Code(syscall.SIGQUIT)
	launchenv.Farewell(exitcode.Errorf(code, "ended by SIGQUIT; nothing was saved; SIGTERM saves before the run ends, and GOTRACEBACK=all shows the stack of every goroutine at SIGQUIT"))
	os.Exit(int(code))
}

// rewritten are the arguments of forms that people also write: "monotron help COMMAND" for "monotron
// COMMAND --help", and COMMAND --version for "monotron version".
func rewritten(app *cli.App, args []string) []string {
	switch {
	case len(args) > 2 && args[len(args)-1] == "--version" && isCommand(app.Commands, args[1:len(args)-1]), len(args) == 2 && args[1] == "-V":
		return []string{args[0], "version"}
	case len(args) == 2 && args[1] == "help":
		return []string{args[0], "--help"}
	case len(args) > 2 && args[1] == "help":
		return append(append([]string{args[0]}, args[2:]...), "--help")
	case len(args) > 1 && args[len(args)-1] == "--help-all" && !groups(app.Commands, args[1:len(args)-1]):
		return append(slices.Clone(args[:len(args)-1]), "--help")
	}
	return args
}

// isCommand reports whether words name a command, or one under another.
func isCommand(list []*cli.Command, words []string) bool {
	for _, word := range words {
		i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 {
			return false
		}
		list = list[i].Subcommands
	}
	return true
}

// groups reports whether the command of these words has flags that its --help folds.
func groups(list []*cli.Command, words []string) bool {
	for _, word := range words {
		i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 {
			return false
		}
		if list[i].SkipFlagParsing { // it reads its own flags, by command.Wrap
			return true
		}
		list = list[i].Subcommands
	}
	return false
}

// output remembers the first error of writing, since the code that prints help ignores errors.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func newApp() *cli.App {
	shell.Help()
	app := &cli.App{
		Name:                      "monotron",
		Usage:                     "train GPT models, from a laptop's CPU to a cluster",
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		EnableBashCompletion:      true,
		Commands:                  commands(),
		Version:                   training.Version,
		HideVersion:               true,
		Flags:                     []cli.Flag{&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print version and exit"}},
		OnUsageError:              wrongFlag,
		ExitErrHandler:            func(*cli.Context, error) {}, // main alone prints
		Action:                    noCommand,
	}
	for _, c := range app.Commands {
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action, c.OnUsageError = noCommand, wrongFlag
		}
	}
	return app
}

// wrongFlag answers a flag in front of the command.
func wrongFlag(_ *cli.Context, err error, _ bool) error {
	if name, is := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); is {
		return exitcode.Errorf(exitcode.Usage, "unknown flag --%s before the command; write flags after the command", strings.TrimPrefix(name, "-"))
	}
	return exitcode.Errorf(exitcode.Usage, "before the command: %w; write flags after the command", err)
}

// noCommand answers a call without a command, or with one that is not there, of
// monotron itself or of a command that has others under it.
func noCommand(c *cli.Context) error {
	if c.Bool("version") {
		return shell.PrintVersion(c, training.Version)
	}
	known, path := c.App.Commands, "monotron"
	if c.Command.Name != c.App.Name {
		known, path = c.Command.Subcommands, "monotron "+c.Command.Name
	}
	if c.Args().Len() == 0 {
		return cli.ShowSubcommandHelp(c)
	}
	set := argv.Set{"help": argv.Switch}
	for _, k := range known {
		set[k.Name] = argv.Switch
	}
	hint := path + " --help lists them"
	if meant, ok := meanings[c.Args().First()]; ok && path == "monotron" {
		return exitcode.Errorf(exitcode.Usage, "monotron has no command %q; did you mean %s?", c.Args().First(), meant)
	}
	if kind := contents(c.Args().First()); kind != "" && path == "monotron inspect" {
		return exitcode.Errorf(exitcode.Usage, "%s has no command %q; did you mean %s %s %s?", path, c.Args().First(), path, kind, argv.Quoted(c.Args().First()))
	}
	if near := argv.Nearest(set, c.Args().First()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return exitcode.Errorf(exitcode.Usage, "%s has no command %q; %s", path, c.Args().First(), hint)
}

// contents is the command of inspect that shows what is at a path; "": nothing is there.
func contents(path string) string {
	if _, err := os.Stat(path + ".idx"); err == nil {
		return "dataset"
	}
	if _, err := os.Stat(path); err == nil {
		return "checkpoint"
	}
	return ""
}

// meanings are commands of other programs, by what does the same here.
var meanings = map[string]string{
	"train": "pretrain_gpt", "pretrain": "pretrain_gpt", "fine-tune": "finetune", "tune": "finetune", "sft": "finetune",
	"preprocess": "preprocess_data", "merge": "merge_datasets", "talk": "chat",
	"eval": "serve, which lm-eval can query (docs/serve.md)", "run": "pretrain_gpt or launch", "torchrun": "launch", "export": "convert", "import": "convert",
	"benchmark": "bench", "info": "doctor", "search": "plan search", "dashboard": "watch",
}

// commands are all, each in its group of --help.
func commands() (all []*cli.Command) {
	for _, g := range []struct {
		name string
		list []*cli.Command
	}{
		{"Data", []*cli.Command{preprocess.Command(), preprocess.FastCommand(), merge.Command(), tokenize.Command(), traintokenizer.Command()}},
		{"Train and tune", []*cli.Command{pretrain.Command(openDevice), finetune.Command(train), launch.Command()}},
		{"Use a model", []*cli.Command{generate.Command(openDevice), logits.Command(openDevice), chat.Command(openDevice), serve.Command(openDevice)}},
		{"Inspect and convert", []*cli.Command{inspect.Command(), convert.Command(openDevice), diff.Command()}},
		{"Plan and measure", []*cli.Command{plan.Command(openDevice), bench.Command(openDevice), measure.Command(openDevice), verify.Command(openDevice)}},
		{"Follow a run", []*cli.Command{report.WatchCommand(), report.Command(), postmortem.Command(), replay.Command(openDevice)}},
		{"This program", []*cli.Command{doctor.Command(openDevice), flags.Command(), shell.Completion("pretrain_gpt", "preprocess_data", "preprocess_data_fast"), shell.Man(newApp),
			shell.Version(training.Version)}},
	} {
		for _, c := range g.list {
			c.Category = g.name
			all = append(all, c)
		}
	}
	return all
}

// train is pretrain_gpt as finetune calls it.
func train(ctx context.Context, args []string) error { return pretrain.Run(ctx, args, openDevice) }

// openDevice opens a device by its --device name; auto takes the first of these that opens.
var openDevice = devices.Opener(
	devices.Kind{Name: "cuda", Open: cuda.Open, OnePerRank: true, Wanted: cuda.Wanted},
	devices.Everywhere("cpu", cpu.Open),
	devices.Everywhere("ref", func() (*device.Device, error) { return ref.Open(), nil }),
)
