// Package coordinates trains one small model at several widths and reports how far its activations move
// in a few steps, by width: the coordinate check of muP (Yang et al., arXiv 2203.03466).
package coordinates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/mpu/ranks"
)

// Options say what is trained.
type Options struct {
	Widths   []int // ascending; the first is muP's base
	Steps    int
	LR       float64
	Standard bool // without muP
	Open     func() (*device.Device, error)
	OnWidth  func(width int) // hears a width before it is trained
}

const (
	headDim    = 16
	layers     = 3
	vocabulary = 64
	positions  = 32
	rows       = 4
)

// Row is one tensor of the model: how far it moved at each width, as the root mean square of the change, and
// the power of the width by which that grows.
type Row struct {
	Name  string    `json:"name"`
	Moved []float64 `json:"moved"`
	Slope float64   `json:"slope"`
}

// Report is the result: rows are the output of each layer, and the logits.
type Report struct {
	Widths []int `json:"widths"`
	Steps  int   `json:"steps"`
	Rows   []Row `json:"rows"`
}

// Check trains the model at each width.
func Check(o Options) (*Report, error) {
	r := &Report{Widths: o.Widths, Steps: o.Steps}
	for i := range layers {
		r.Rows = append(r.Rows, Row{Name: fmt.Sprintf("layer %d", i)})
	}
	r.Rows = append(r.Rows, Row{Name: "logits"})
	for _, width := range o.Widths {
		o.OnWidth(width)
		moved, err := train(o, width)
		if err != nil {
			return nil, fmt.Errorf("width %d: %w", width, err)
		}
		for i, x := range moved {
			r.Rows[i].Moved = append(r.Rows[i].Moved, x)
		}
	}
	for i := range r.Rows {
		r.Rows[i].Slope = slope(o.Widths, r.Rows[i].Moved)
	}
	return r, nil
}

// Steepest is the largest slope, up or down.
func (r *Report) Steepest() (worst Row) {
	for _, row := range r.Rows {
		if worst.Name == "" || math.Abs(row.Slope) > math.Abs(worst.Slope) {
			worst = row
		}
	}
	return worst
}

// slope is the power of the width by which values grow: the line through their logarithms.
func slope(widths []int, values []float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for i, w := range widths {
		x, y := math.Log(float64(w)), math.Log(values[i])
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// settings are those of one width.
func settings(o Options, width int) (config.Run, error) {
	heads := width / headDim
	line := fmt.Sprintf("--num-layers %d --hidden-size %d --num-attention-heads %d --ffn-hidden-size %d --seq-length %d --max-position-embeddings %d --micro-batch-size %d "+
		"--global-batch-size %d --train-iters %d --lr %s --lr-decay-style constant --clip-grad 0 --weight-decay 0 --hidden-dropout 0 --attention-dropout 0 --init-method-std 0.1 "+
		"--embedding-init-method-std 0.05 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear "+
		"--tokenizer-type NullTokenizer --vocab-size %d --mock-data",
		layers, width, heads, 2*width, positions, positions, rows, rows, o.Steps, strconv.FormatFloat(o.LR, 'g', -1, 64), vocabulary)
	if !o.Standard {
		line += fmt.Sprintf(" --use-mup --mup-base-hidden-size %d --mup-base-head-dim %d", o.Widths[0], headDim)
	}
	c, _, err := arguments.ParseWith(arguments.Options{Partial: true, Layouts: true, Experts: true, ModelOnly: true}, strings.Fields(line))
	if err != nil {
		return c, err
	}
	if c.Checkpoint, c.Log, c.Layout = (config.Checkpoint{}), (config.Log{}), (config.Layout{VP: 1}); err == nil {
		err = c.SetVocab(vocabulary)
	}
	return c, err
}

// batch is rows of random tokens, each followed by one that depends on it alone.
func batch() *engine.Micro {
	r := rand.New(rand.NewPCG(3, 3))
	m := &engine.Micro{}
	for j := range rows {
		tokens, labels, mask, at := make([]int32, positions), make([]int32, positions), make([]float32, positions), make([]int32, positions)
		for i := range tokens {
			tokens[i], mask[i], at[i] = int32(r.IntN(vocabulary)), 1, int32(i)
			labels[i] = (tokens[i]*7 + 3) % vocabulary
		}
		m.Tokens, m.Labels, m.LossMask, m.PositionIDs, m.Samples = append(m.Tokens, tokens), append(m.Labels, labels), append(m.LossMask, mask), append(m.PositionIDs, at), append(m.Samples, int32(j))
	}
	return m
}

// train is how far each tensor moves in the steps.
func train(o Options, width int) (moved []float64, err error) {
	c, err := settings(o, width)
	if err != nil {
		return nil, err
	}
	schedule, err := c.Optimizer.Schedule(c.TrainIters, c.TrainSamples, c.GlobalBatchSize)
	if err != nil {
		return nil, err
	}
	err = ranks.Run(engine.Ranks(&c.Step, o.Open), func(r *ranks.Rank) error {
		e, err := engine.New(r, c.Step, schedule)
		if err != nil {
			return err
		}
		if err := e.Initialize(); err != nil {
			return err
		}
		micros := []*engine.Micro{batch()}
		// What the layers give before and after the steps, on the same batch.
		before, err := seen(e, r.Device, micros)
		if err != nil {
			return err
		}
		for range o.Steps {
			if _, err := e.Step(micros); err != nil {
				return err
			}
		}
		after, err := seen(e, r.Device, micros)
		for i := range after {
			moved = append(moved, apart(before[i], after[i]))
		}
		return err
	})
	return moved, err
}

// seen are the outputs of the layers, and the logits.
func seen(e *engine.Engine, d *device.Device, micros []*engine.Micro) (all [][]float32, failed error) {
	read := func(t device.Tensor) []float32 { return device.ReadSlice[float32](d, t) }
	err := e.Peek(micros, engine.Observer{
		Layer: func(depth int, x device.Tensor) {
			if depth > 0 {
				all = append(all, read(x))
			}
		},
		Done: func(p *model.Pass, out *model.Output) {
			s := d.Arena.Scope(device.Activations)
			defer s.Release()
			logits := s.Alloc(device.F32, p.Tokens(), vocabulary)
			failed = e.Stages[0].Logits(p, logits, out.Hidden)
			all = append(all, read(logits))
		},
	})
	if err == nil {
		err = failed
	}
	if err == nil && len(all) != layers+1 {
		err = exitcode.Errorf(exitcode.Internal, "internal error: %d tensors were recorded for a model of %d layers; report this, and include the command line", len(all), layers)
	}
	return all, err
}

// apart is the root mean square of the differences.
func apart(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}
