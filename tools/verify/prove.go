package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/verify/layouts"
)

var proveFlags = []cli.Flag{
	command.Between(1, 64, &cli.IntFlag{Name: "world-size", Value: 8, Usage: "use at most N ranks, all in this process"}),
	&cli.StringFlag{Name: "shape", Value: "gpt2,llama,bloom", Usage: "train these models if no model flags are given"},
	command.Between(1, 1000000, &cli.IntFlag{Name: "steps", Value: 3, Usage: "train for N steps under each layout"}),
	&cli.BoolFlag{Name: "full", Usage: "train the model at its full size instead of a reduced one"},
	&cli.BoolFlag{Name: "bits", Usage: "train with --layout-invariant and require the same bits as on one rank (docs/invariance.md)"},
	&cli.StringFlag{Name: "only", Usage: "run only layouts whose name contains all these words, as in \"tp2 sp\""},
	command.Between(1, 1000000, &cli.IntFlag{Name: "stride", Value: 1, Usage: "run only every Nth layout"}),
	&cli.BoolFlag{Name: "mutate", Usage: "break one collective, mask or padded column at a time and report whether the check detects it"},
	&cli.StringFlag{Name: "mutant", Usage: "with --mutate: inject only faults whose name contains this text, as in \"RowParallelLinear.Forward, call 96 of 144\""},
	&cli.StringFlag{Name: "device", Value: "auto", Usage: "train on this device: auto, cpu, cuda or ref"},
	&cli.BoolFlag{Name: "all", Usage: "print every layout, not only those whose differences are closest to the allowed limit"},
	&cli.BoolFlag{Name: "json", Usage: "print the report as one JSON object"},
	&cli.StringFlag{Name: "png", Usage: "write the table of layouts to `FILE` as a PNG picture"},
}

const proveText = "Trains one small model under every legal layout of up to --world-size ranks (tensor, sequence, context, pipeline, data and expert\n" +
	"parallel, sharded optimizers, recomputation) and compares losses, every step's gradients, gradient norm, weights and samples with those of one rank.\n" +
	"The model is that of your training run if you add its flags (at a reduced size unless --full is given), otherwise GPT-2, Llama and BLOOM in turn.\n" +
	"--bf16 or --fp16 selects the precision.\n\n" +
	"Exit code 0: every layout trains the same model, or with --mutate every fault is detected; 1: a layout differs, or a fault is not detected.\n\nExamples:\n" +
	"  monotron verify --world-size 4\n" +
	"  monotron verify --world-size 8 --bf16 --shape llama\n" +
	"  monotron verify --mutate --world-size 4\n" +
	"  monotron verify --world-size 4 --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --swiglu ..."

// proveCommand is `verify` without `case`.
func proveCommand(open func(string) (*device.Device, error)) cli.Command {
	return *command.WrapOpen(&cli.Command{Name: "verify", Usage: "check that every parallel layout trains the same model", Description: proveText, Flags: proveFlags,
		Action: func(c *cli.Context) error { return prove(c, open) }})
}

func prove(c *cli.Context, open func(string) (*device.Device, error)) error {
	if c.Bool("mutate") && c.String("png") != "" {
		return exitcode.Errorf(exitcode.Usage, "--png cannot be combined with --mutate, which makes no table of layouts to draw; leave one out")
	}
	var picture *atomicfile.File
	if path := c.String("png"); path != "" { // before anything takes time
		var err error
		if picture, err = atomicfile.Create(path, 0o644); err != nil {
			return fmt.Errorf("--png: %w", err)
		}
		defer picture.Abort()
	}
	// Models and what to compare, then the comparison.
	models, err := chosenModels(c)
	if err != nil {
		return err
	}
	options := layouts.Options{World: c.Int("world-size"), Steps: c.Int("steps"), Only: c.String("only"), Stride: c.Int("stride"),
		Mutate: c.Bool("mutate"), Bits: c.Bool("bits"), Mutant: c.String("mutant"), Open: func() (*device.Device, error) { return open(c.String("device")) }, Reported: newProgress().report}
	report, err := layouts.Prove(models, options)
	if err != nil {
		return err
	}
	if len(report.Rows) == 0 && len(report.Mutants) == 0 {
		return nothingChosen(models, options)
	}
	// The report, and a picture of it.
	if c.Bool("json") {
		err = report.WriteJSON(c.App.Writer)
	} else {
		err = report.WriteTable(c.App.Writer, c.Bool("all"))
	}
	if picture != nil && err == nil {
		if err = report.WritePicture(picture, c.Bool("all")); err == nil {
			err = picture.Commit()
		}
	}
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	// A difference is exit code 1.
	if differ, unseen := report.Failed(); differ+unseen > 0 {
		return exitcode.Errorf(exitcode.Differs, "%d layouts differ from one rank, and %d injected faults were not detected", differ, unseen)
	}
	return nil
}

// nothingChosen says what there is to choose from.
func nothingChosen(models []layouts.Model, o layouts.Options) error {
	var names []string
	for _, m := range models {
		for _, name := range o.Names(m) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	what := fmt.Sprintf("layout of up to %d ranks", o.World)
	if o.Mutate {
		what += " into which --mutate can inject a fault"
	}
	if len(names) == 0 {
		return exitcode.Errorf(exitcode.Usage, "this model has no legal %s; give a larger --world-size", what)
	}
	const few = 12
	more := ""
	if len(names) > few {
		more = fmt.Sprintf(" and %d more", len(names)-few)
		names = names[:few]
	}
	return exitcode.Errorf(exitcode.Usage, "no %s has all the words of --only %q; the names are: %s%s", what, o.Only, strings.Join(names, "; "), more)
}

// chosenModels is the model of the flags that are not verify's own, or the shapes.
// A precision alone is combined with the shapes.
func chosenModels(c *cli.Context) (models []layouts.Model, err error) {
	flags := c.Args().Slice()
	if c.Bool("bits") {
		flags = append(flags, "--layout-invariant")
	}
	if strings.Contains(strings.Join(flags, " "), "--num-layers") {
		m, err := layouts.FromFlags(flags, c.Bool("full"))
		return []layouts.Model{m}, err
	}
	for _, name := range strings.Split(c.String("shape"), ",") {
		m, err := layouts.Builtin(strings.TrimSpace(name), flags...)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}
