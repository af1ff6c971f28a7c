package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/engine"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// What `bench experts` leaves of a model, where the flags say nothing else: the head, which
// all shapes have alike, must not hide what experts cost.
const (
	expertLayers = 2
	expertVocab  = 1024
)

// mixtureTime is the step of one shape.
type mixtureTime struct {
	Shape     string  `json:"shape"`
	Seconds   float64 `json:"step_seconds"` // median
	Fastest   float64 `json:"fastest_step_seconds"`
	Tokens    float64 `json:"tokens_per_second"`
	FLOPs     float64 `json:"flops_per_second"` // of the model, by Megatron's formula
	OfDense   float64 `json:"of_dense"`         // FLOPs, over the dense shape's
	Travel    float64 `json:"dispatch_and_combine_share"`
	Router    float64 `json:"router_share"`
	Products  float64 `json:"grouped_products_share"`
	Optimizer float64 `json:"optimizer_share"`
	Memory    int64   `json:"arena_peak_bytes"`

	ops   tally
	model spec.Model
	on    *device.Device
	train *engine.Engine
	took  []oneStep
}

// kindOf sorts ops of a mixture by what they are for.
func kindOf(op string) string {
	switch op {
	case "expert_order", "gather_rows", "combine_rows", "place_choices":
		return "travel"
	case "router_forward", "router_backward", "router_balance", "router_z", "router_drop", "router_sinkhorn":
		return "router"
	case "grouped_matmul", "grouped_sum":
		return "products"
	}
	return ""
}

// benchExperts times a mixture's step and that of a dense model in which a token meets as
// many channels, and of four times as many experts a token of a quarter of the width, alternating.
func benchExperts(c *cli.Context, open func(string) (*device.Device, error)) error {
	// A mixture whose experts can be cut in four.
	if !c.IsSet("model") {
		if err := c.Set("model", "moe-237m"); err != nil {
			return err
		}
	}
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	if o.model.Experts == nil {
		return exitcode.Errorf(exitcode.Usage, "bench experts --model %s: the model has no experts; use a model with experts, such as moe-237m", o.name)
	}
	if o.model.Experts.FFNHiddenSize%4 != 0 {
		return exitcode.Errorf(exitcode.Usage, "bench experts --model %s: the experts have %d channels, which is not a multiple of 4; use another model", o.name, o.model.Experts.FFNHiddenSize)
	}
	// Three models on devices of their own, whose steps alternate.
	times := extraShapes(o.model)
	for i := range times {
		d, err := open(c.String("device"))
		if err != nil {
			return err
		}
		defer d.Close()
		if err := times[i].begin(d, o); err != nil {
			return err
		}
	}
	if err := alternating(times, o); err != nil {
		return err
	}
	for i := range times {
		times[i].sum(o, times[0].FLOPs)
	}
	out := &command.Printer{W: c.App.Writer}
	if c.Bool("json") {
		out.JSON(times)
		return out.Err
	}
	printMixtures(out, o, times)
	return out.Err
}

// extraShapes are a dense model, the mixture itself, and one of finer experts: all of as
// many operations a token.
func extraShapes(m spec.Model) []mixtureTime {
	m.NumLayers = min(m.NumLayers, expertLayers)
	m.VocabSize, m.PaddedVocabSize = expertVocab, expertVocab
	dense, finer := m, m
	dense.Experts, dense.FFNHiddenSize = nil, m.Experts.TopK*m.Experts.FFNHiddenSize+m.Experts.SharedFFN
	e := *m.Experts
	e.Num, e.TopK, e.FFNHiddenSize = 16*e.Num, 4*e.TopK, e.FFNHiddenSize/4
	finer.Experts = &e
	name := func(e *spec.Experts) string {
		return fmt.Sprintf("%d experts of %d, %d a token", e.Num, e.FFNHiddenSize, e.TopK)
	}
	return []mixtureTime{{Shape: fmt.Sprintf("dense of %d", dense.FFNHiddenSize), model: dense}, {Shape: name(m.Experts), model: m}, {Shape: name(&e), model: finer}}
}

// begin makes the model on d.
func (t *mixtureTime) begin(d *device.Device, o options) (err error) {
	o.model = t.model
	t.ops, t.on = tally{}, d
	t.train, err = engineOf(ranks.Alone(d), timing.Config(o.shape()))
	d.Observe = t.ops.add
	return err
}

// alternating trains all shapes, a step of each at a time, on the same samples; the first step of
// each does not count.
func alternating(times []mixtureTime, o options) error {
	random := rand.New(rand.NewPCG(timing.Seed, 0))
	o.model.VocabSize = expertVocab
	var start time.Time
	for n := 0; n < 1 || !done(o.steps, n-1, time.Since(start) > full.steps); n++ {
		micro := timing.RandomTokens(random, o.shape())
		for i := range times {
			t := &times[i]
			began := time.Now()
			trained, err := t.train.Step([]*engine.Micro{micro})
			if err != nil {
				return err
			}
			if n == 0 {
				clear(t.ops)
				continue
			}
			t.took = append(t.took, oneStep{total: time.Since(began), optimizer: trained.UpdateFor})
		}
		if n == 0 {
			start = time.Now()
		}
	}
	return nil
}

// sum makes numbers of the steps; dense: FLOPs of the first shape, 0 of itself.
func (t *mixtureTime) sum(o options, dense float64) {
	t.Seconds = medianOf(t.took, func(s oneStep) time.Duration { return s.total })
	t.Fastest = slices.MinFunc(t.took, func(a, b oneStep) int { return int(a.total - b.total) }).total.Seconds()
	t.Tokens = float64(o.batch*o.seq) / t.Seconds
	t.FLOPs = t.model.FLOPs(o.batch, o.seq) / t.Seconds
	if t.OfDense = 1; dense > 0 {
		t.OfDense = t.FLOPs / dense
	}
	t.Memory = t.on.Arena.Usage().Max
	t.Optimizer = medianOf(t.took, func(s oneStep) time.Duration { return s.optimizer }) / t.Seconds
	for _, op := range t.ops.sums(t.took) {
		switch kindOf(op.Op) {
		case "travel":
			t.Travel += op.Share
		case "router":
			t.Router += op.Share
		case "products":
			t.Products += op.Share
		}
	}
}

func printMixtures(out *command.Printer, o options, times []mixtureTime) {
	m := times[0].model
	out.Printf("%s, %d layers, vocabulary %d, %s, %d x %d tokens a step, %d steps of each, alternating\n", o.name, m.NumLayers, m.VocabSize, o.precision, o.batch, o.seq, len(times[0].took))
	t := tabwriter.NewWriter(out.W, 0, 0, 2, ' ', 0)
	to := &command.Printer{W: t}
	to.Printf("MLP\tms a step\ttokens/s\tGFLOP/s of the model\tof dense\tdispatch + combine\trouter\tgrouped products\toptimizer\n")
	for _, x := range times {
		to.Printf("%s\t%.1f\t%.0f\t%.1f\t%.2f\t%.1f%%\t%.1f%%\t%.1f%%\t%.1f%%\n", x.Shape, 1e3*x.Seconds, x.Tokens, x.FLOPs/1e9, x.OfDense, 100*x.Travel, 100*x.Router, 100*x.Products, 100*x.Optimizer)
	}
	if to.Err == nil {
		to.Err = t.Flush()
	}
	out.Err = to.Err
}
