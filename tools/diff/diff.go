// Package diff is the command diff: what differs between two checkpoints (diff.go, table.go) or
// between what two runs computed (runs.go).
package diff

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/compare"
	"monotron/tools/internal/command"
)

const description = `A and B are checkpoints of any formats and layouts: a save folder (its latest iteration, or
--step-a, --step-b), one iteration's folder, a model's folder or a file. Both are read by the
names and shapes of the complete model, so that a TP4xPP2 checkpoint compares with a converted one.

Prints, for every tensor that differs, the largest absolute and relative difference, both norms,
the number of elements that differ, and the first one with its index and both values; tensors that
only one side has; changes of iteration, samples, schedule and loss scale; and, for information,
changed settings.

A and B may also be two folders that pretrain_gpt wrote with --log-fingerprints. The command then
names the first iteration, rank, micro-batch, layer and tensor that the two runs computed differently.

Exit code 0: nothing differs (settings do not count); 1: something differs.

Examples:
  monotron diff ckpt/iter_0000100 ckpt/iter_0000200 --weights-only
  monotron diff before-restart after-restart          show what the restart changed
  monotron diff hf-model converted --rtol 0.01        bf16 against f32
  monotron diff prints-a prints-b                     where two runs begin to differ`

// Command is diff.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "diff",
		Usage:       "compare two checkpoints, or what two runs computed",
		ArgsUsage:   "A B",
		Description: description,
		Flags: []cli.Flag{
			command.Between(-1, command.Counts, &cli.Int64Flag{Name: "step-a", Value: -1, DefaultText: "the latest", Usage: "read this iteration of the save folder A"}),
			command.Between(-1, command.Counts, &cli.Int64Flag{Name: "step-b", Value: -1, DefaultText: "the latest", Usage: "read this iteration of the save folder B"}),
			&cli.BoolFlag{Name: "weights-only", Usage: "compare the weights only"},
			&cli.BoolFlag{Name: "keep-padding", Usage: "also compare the padding rows of the vocabulary"},
			command.Between(0, math.MaxFloat64, &cli.Float64Flag{Name: "atol", Usage: "accept differences up to atol + rtol*|a|"}),
			command.Between(0, math.MaxFloat64, &cli.Float64Flag{Name: "rtol", Usage: "set rtol in the formula of --atol"}),
			&cli.BoolFlag{Name: "all", Usage: "list equal tensors too"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		},
		Action: run,
	})
}

// report is the result; its JSON is for scripts.
type report struct {
	A        side              `json:"a"`
	B        side              `json:"b"`
	Equal    bool              `json:"equal"`
	Compared int               `json:"compared"`
	Tensors  []compare.Tensor  `json:"tensors"` // that differ; all with --all
	State    []compare.Setting `json:"state"`
	Settings []compare.Setting `json:"settings"`
	Notes    []string          `json:"notes,omitempty"`
}

type side struct {
	Path      string            `json:"path"`
	Format    checkpoint.Format `json:"format"`
	Iteration int64             `json:"iteration"`

	Apart []compare.Tensor `json:"copies_apart,omitempty"` // that the files hold twice, and not alike; a: what is read, b: the copy
}

func run(c *cli.Context) error {
	if c.NArg() != 2 {
		return exitcode.Errorf(exitcode.Usage, "diff needs two checkpoints, but has %d: %q; monotron diff --help shows examples", c.NArg(), c.Args().Slice())
	}
	// Two runs are compared by their fingerprints, two checkpoints by their tensors.
	if x, y := c.Args().Get(0), c.Args().Get(1); isRun(x) && isRun(y) {
		return diffRuns(c, x, y)
	}
	first, err := command.Local(c, c.Args().Get(0), c.Int64("step-a"))
	if err != nil {
		return err
	}
	second, err := command.Local(c, c.Args().Get(1), c.Int64("step-b"))
	if err != nil {
		return err
	}
	a, err := all.Open(first, checkpoint.OpenOptions{Step: c.Int64("step-a"), KeepPadding: c.Bool("keep-padding")})
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := all.Open(second, checkpoint.OpenOptions{Step: c.Int64("step-b"), KeepPadding: c.Bool("keep-padding")})
	if err != nil {
		return err
	}
	defer b.Close()
	// Every tensor of both, within the bounds that were asked for.
	r, err := build(a, b, c.Bool("weights-only"), compare.Options{Abs: c.Float64("atol"), Rel: c.Float64("rtol")})
	if err != nil {
		return err
	}
	if !c.Bool("all") {
		r.onlyDifferent()
	}
	if err := r.print(c); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if !r.Equal {
		return exitcode.Errorf(exitcode.Differs, "%s and %s differ", r.A.Path, r.B.Path)
	}
	return nil
}

// build compares. A side whose format, or whose save, has no optimizer is
// compared by its weights.
func build(a, b checkpoint.Source, weightsOnly bool, o compare.Options) (*report, error) {
	r := &report{A: sideOf(a), B: sideOf(b)}
	x, y := a, b
	for _, s := range []struct{ has, lacks checkpoint.Source }{{a, b}, {b, a}} {
		if !weightsOnly && hasOptimizer(s.has) && !hasOptimizer(s.lacks) {
			weightsOnly = true
			r.Notes = append(r.Notes, s.lacks.Info().Path+" has no optimizer state: only the weights are compared")
		}
	}
	if weightsOnly {
		x, y = checkpoint.WeightsOnly(a), checkpoint.WeightsOnly(b)
	}
	var err error
	if r.Tensors, err = compare.Tensors(x, y, o); err != nil {
		return nil, err
	}
	r.Compared = len(r.Tensors)
	if !weightsOnly && r.A.Format != checkpoint.HF && r.B.Format != checkpoint.HF { // which has no state at all
		r.State = compare.State(a.State(), b.State())
	}
	r.Settings = compare.Config(a, b)
	if r.A.Apart, err = apart(a, weightsOnly, o); err != nil {
		return nil, err
	}
	if r.B.Apart, err = apart(b, weightsOnly, o); err != nil {
		return nil, err
	}
	r.Equal = len(r.State) == 0 && len(r.A.Apart) == 0 && len(r.B.Apart) == 0
	for i := range r.Tensors {
		r.Equal = r.Equal && r.Tensors[i].Equal()
	}
	return r, nil
}

func sideOf(s checkpoint.Source) side {
	return side{Path: s.Info().Path, Format: s.Info().Format, Iteration: s.State().Iteration}
}

// apart are the tensors of a checkpoint whose two copies are not alike.
func apart(s checkpoint.Source, weightsOnly bool, o compare.Options) ([]compare.Tensor, error) {
	list, err := compare.Copies(s, o)
	return slices.DeleteFunc(list, func(t compare.Tensor) bool {
		return t.Equal() || weightsOnly && !strings.HasPrefix(t.Name, checkpoint.Model)
	}), err
}

func hasOptimizer(s checkpoint.Source) bool {
	for _, t := range s.Tensors() {
		if !strings.HasPrefix(t.Name, checkpoint.Model) {
			return true
		}
	}
	return false
}

func (r *report) onlyDifferent() {
	var list []compare.Tensor
	for i := range r.Tensors {
		if !r.Tensors[i].Equal() {
			list = append(list, r.Tensors[i])
		}
	}
	r.Tensors = list
}

func (r *report) print(c *cli.Context) error {
	if c.Bool("json") {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	p := &command.Printer{W: c.App.Writer}
	r.table(p, terminalWidth(c.App.Writer))
	return p.Err
}
