package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// rung is a way to run the step on a GPU. What the environment says holds for a complete
// process: each rung is one.
type rung struct {
	name  string
	flags []string
	env   []string
}

var rungs = []rung{
	{"f32", []string{"--fp32"}, []string{"MONOTRON_TF32=off"}},
	{"TF32", []string{"--fp32"}, []string{"MONOTRON_TF32=on"}},
	{"bf16", []string{"--bf16"}, nil},
	{"graphs", []string{"--bf16", "--cuda-graph-impl", "local"}, nil},
	{"own products", []string{"--bf16", "--cuda-graph-impl", "local"}, []string{"MONOTRON_CUBLASLT=off"}},
}

// aside is the rung that leads nowhere: the same as the one before without cuBLASLt.
const aside = "own products"

// ladderShape is a model and the batch that it climbs with.
type ladderShape struct {
	model      string
	batch, seq int
}

var ladderShapes = []ladderShape{{"shakespeare-char-11m", 64, 256}, {"gpt2-124m", 16, 1024}}

// rungTime is a row of `bench ladder --json`.
type rungTime struct {
	Rung   string  `json:"rung"`
	Model  string  `json:"model"`
	Step   *result `json:"step,omitempty"`
	Failed string  `json:"failed,omitempty"`
}

// ladderTime is for the steps of one rung.
const ladderTime = 3 * time.Second

// benchStep is `bench step`: training steps alone.
func benchStep(c *cli.Context, open func(string) (*device.Device, error)) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	return command.WithDevice(c, open, func(d *device.Device) error {
		r := &result{Model: o.name, MicroBatchSize: o.batch, SeqLength: o.seq, Precision: o.precision, Dropout: o.model.HiddenDropout,
			Device: d.Name + ": " + d.Describe(), Processor: system.Processor(), Threads: device.SharedPool().Threads(), Processors: runtime.NumCPU()}
		if err := r.train(d, o, ladderTime); err != nil {
			return err
		}
		out := &command.Printer{W: c.App.Writer}
		if !c.Bool("json") {
			out.Printf("%s\n%s, %d x %d tokens, %s: median of %d steps %.5f s, %.1f tokens/s, %.2f TFLOP/s\n", r.Device, r.Model, r.MicroBatchSize, r.SeqLength,
				r.Precision, r.Steps, r.StepSeconds, r.TokensPerSecond, r.TokensPerSecond*r.FLOPsPerToken/1e12)
			return out.Err
		}
		text, err := json.Marshal(r)
		out.Printf("%s\n", text)
		if err != nil {
			return err
		}
		return out.Err
	})
}

// ladder runs the step on every rung, and writes a table of Markdown; a rung that fails
// has a line that says why. One that was not run for its flags or for want of a GPU ends it.
func ladder(c *cli.Context) error {
	shapes := ladderShapes
	if c.IsSet("model") {
		shapes = []ladderShape{{c.String("model"), c.Int("micro-batch-size"), c.Int("seq-length")}}
	}
	if on := c.String("device"); on != "cuda" && on != "auto" {
		return exitcode.Errorf(exitcode.Usage, "bench ladder needs --device cuda, not %s", on)
	}
	var rows []rungTime
	out := tableOf(c)
	out.Printf("| model | tokens a step | | step, ms | tokens/s | TFLOP/s | gain | memory, GiB |\n|---|---|---|---|---|---|---|---|\n")
	failed := 0
	for _, shape := range shapes {
		before := 0.0
		// Each rung against the one before it, but for one that stands aside.
		for _, step := range rungs {
			r, err := climb(c, shape, step)
			if exitcode.CodeOf(err) == exitcode.Usage {
				return err
			}
			if err != nil {
				rows = append(rows, rungTime{Rung: step.name, Model: shape.model, Failed: err.Error()})
				out.Printf("| %s | %d x %d | %s | failed: %v | | | | |\n", shape.model, shape.batch, shape.seq, step.name, err)
				failed++
				continue
			}
			rows = append(rows, rungTime{Rung: step.name, Model: shape.model, Step: r})
			gain := ""
			if before > 0 {
				gain = fmt.Sprintf("%.2fx", before/r.StepSeconds)
			}
			if step.name != aside {
				before = r.StepSeconds
			}
			out.Printf("| %s | %d x %d | %s | %.3f | %.0f | %.2f | %s | %.2f |\n", shape.model, shape.batch, shape.seq, step.name, 1e3*r.StepSeconds, r.TokensPerSecond,
				r.TokensPerSecond*r.FLOPsPerToken/1e12, gain, float64(r.ArenaPeak)/(1<<30))
		}
	}
	out.Printf("\nA gain is relative to the row above; the gain of own products (graphs without cuBLASLt) is relative to graphs. Fused kernels and\n" +
		"flash attention are in every row, since this device has no others. All rows have the dropout of --dropout.\n")
	if out.Err == nil && c.Bool("json") {
		out = &command.Printer{W: c.App.Writer}
		out.JSON(rows)
	}
	if failed > 0 {
		return exitcode.Errorf(exitcode.Internal, "%d rows of the table failed; the table has the reasons", failed)
	}
	return out.Err
}

// climb times one rung in a process of its own.
func climb(c *cli.Context, shape ladderShape, step rung) (*result, error) {
	line := append([]string{"bench", "step", "--json", "--device", "cuda", "--model", shape.model, "--micro-batch-size", strconv.Itoa(shape.batch),
		"--seq-length", strconv.Itoa(shape.seq), "--dropout", fmt.Sprint(c.Float64("dropout")), "--steps", strconv.Itoa(c.Int("steps"))}, step.flags...)
	cmd, err := timing.Again(c.Context, line...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), step.env...)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	text, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(notes.String()), "\n")
		said := strings.TrimPrefix(lines[len(lines)-1], "monotron: ")
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == int(exitcode.Usage) {
			return nil, exitcode.Errorf(exitcode.Usage, "%s", said)
		}
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	r := &result{}
	return r, json.Unmarshal(text, r)
}
