package plan

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/schedule"
	"monotron/megatron/spec"
)

// Sizes are what the formulas of the literature know of a run.
type Sizes struct {
	B, S, H, L, A, V, FFN float64 // global batch in samples, sequence, hidden size, layers, heads, padded vocabulary, FFN
	T, P, D, C            float64 // tensor-, pipeline- and data-parallel ranks, chunks of a stage
	Micro, Micros         float64 // samples of a micro-batch, micro-batches a step
	N                     float64 // parameters, exact
	Value                 float64 // bytes of a parameter as the model reads it
}

// SizesOf are those of a run whose vocabulary is set.
func SizesOf(c *config.Run) Sizes {
	l, m := c.Layout.Sizes(), &c.Model
	s := Sizes{B: float64(c.GlobalBatchSize), S: float64(c.SeqLength), H: float64(m.HiddenSize), L: float64(m.NumLayers), A: float64(m.NumAttentionHeads), V: float64(m.PaddedVocabSize),
		FFN: float64(m.FFNHiddenSize), T: float64(l.TP), P: float64(l.PP), D: float64(l.DP), C: float64(max(1, c.Layout.VP)), Micro: float64(c.MicroBatchSize), N: float64(m.Parameters()), Value: 2}
	s.Micros = s.B / s.Micro / s.D
	if c.Precision == config.F32 {
		s.Value = 4
	}
	return s
}

// Formula is a rule of the literature.
type Formula struct {
	Name, Text, Source, Unit string
	Of                       func(Sizes) float64
	exact                    func(*known) float64 // NaN: nothing of ours is the same
}

// Formulas are the rules that people plan with.
var Formulas = []Formula{
	{"parameters", "12lh²(1 + 13/12h + (V+s)/12lh)", "Narayanan et al. 2021, arXiv 2104.04473, eq. 2 (GPT with learned positions)", "", func(z Sizes) float64 {
		return 12*z.L*z.H*z.H*(1+13/(12*z.H)) + (z.V+z.S)*z.H
	}, func(k *known) float64 { return float64(k.model.Parameters()) }},
	{"parameters, rule of thumb", "12lh²", "Kaplan et al. 2020, arXiv 2001.08361, table 1", "", func(z Sizes) float64 { return 12 * z.L * z.H * z.H },
		func(k *known) float64 { return float64(k.model.Parameters()) }},
	{"operations a step", "6·N·tokens", "Kaplan et al. 2020, section 2.1", "FLOP", func(z Sizes) float64 { return 6 * z.N * z.B * z.S }, (*known).flops},
	{"operations a step", "72Bslh²(1 + s/6h + V/12lh)", "the next formula without the second forward pass (attention of all pairs)", "FLOP", func(z Sizes) float64 {
		return 72 * z.B * z.S * z.L * z.H * z.H * (1 + z.S/(6*z.H) + z.V/(12*z.L*z.H))
	}, (*known).flops},
	{"operations a step, recomputed", "96Bslh²(1 + s/6h + V/16lh)", "Narayanan et al. 2021, eq. 3 (layers run forward twice)", "FLOP", func(z Sizes) float64 {
		return 96 * z.B * z.S * z.L * z.H * z.H * (1 + z.S/(6*z.H) + z.V/(16*z.L*z.H))
	}, func(*known) float64 { return math.NaN() }},
	{"weights, gradients, optimizer of a rank", "18N/tp·pp", "Megatron-LM, theoretical_memory_usage.py (no distributed optimizer)", "B", func(z Sizes) float64 { return 18 * z.N / z.T / z.P }, (*known).state},
	{"the same, sharded by ZeRO-1", "(6 + 12/dp)N/tp·pp", "Megatron-LM, theoretical_memory_usage.py", "B", func(z Sizes) float64 { return (6 + 12/z.D) * z.N / z.T / z.P }, (*known).state},
	{"the same, sharded by ZeRO-3", "16N/dp·tp·pp", "Rajbhandari et al. 2020, arXiv 1910.02054, figure 1", "B", func(z Sizes) float64 { return 16 * z.N / z.D / z.T / z.P }, (*known).state},
	{"activations of a stage, nothing saved", "sbhl(34 + 5as/h)", "Korthikanti et al. 2022, arXiv 2205.05198, eq. 1 (one rank, scores kept)", "B", func(z Sizes) float64 {
		return z.S * z.Micro * z.H * z.L * (34 + 5*z.A*z.S/z.H)
	}, (*known).activations},
	{"activations of a rank, tensor parallelism", "sbhl(10 + 24/t + 5as/ht)", "Korthikanti et al. 2022, eq. 2 (first stage: as many micro-batches as stages)", "B", func(z Sizes) float64 {
		return z.S * z.Micro * z.H * z.L * (10 + 24/z.T + 5*z.A*z.S/(z.H*z.T))
	}, (*known).activations},
	{"activations, tensor and sequence parallelism, no scores", "34sbhl/t", "Korthikanti et al. 2022, eq. 6", "B", func(z Sizes) float64 { return 34 * z.S * z.Micro * z.H * z.L / z.T }, (*known).activations},
	{"activations, full recomputation", "2sbhl", "Korthikanti et al. 2022, table 2", "B", func(z Sizes) float64 { return 2 * z.S * z.Micro * z.H * z.L }, (*known).activations},
	{"idle over busy time of the pipeline", "(p−1)/(v·m)", "Narayanan et al. 2021, section 2.2", "", func(z Sizes) float64 { return (z.P - 1) / z.C / z.Micros }, (*known).bubble},
}

// known is what our own code says of the run.
type known struct {
	config  *config.Run
	model   *spec.Model
	largest Rank
	idle    float64
}

func (k *known) flops() float64 { return k.model.FLOPs(k.config.GlobalBatchSize, k.config.SeqLength) }

func (k *known) state() float64 {
	b := &k.largest.AtPeak
	return float64(b[device.Parameters] + b[device.MainGradients] + b[device.Optimizer])
}

func (k *known) activations() float64 { return float64(k.largest.AtPeak[device.Activations]) }
func (k *known) bubble() float64      { return k.idle }

// Compared is a formula and what our own code has.
type Compared struct {
	*Formula
	Value float64
	Exact float64 // NaN: there is none
}

// Off is how far the formula is from it, as a fraction; NaN where there is nothing to compare.
func (c *Compared) Off() float64 { return c.Value/c.Exact - 1 }

// Compare holds every formula against the run itself; largest is the rank that holds most.
func Compare(c *config.Run, largest Rank) ([]Compared, error) {
	k := &known{config: c, model: &c.Model, largest: largest, idle: math.NaN()}
	z := SizesOf(c)
	if line, err := timeline(c, int(z.Micros)); err == nil {
		busy := line.Busy(0)
		k.idle = (line.End - busy) / busy
	}
	var all []Compared
	for i := range Formulas {
		f := &Formulas[i]
		all = append(all, Compared{f, f.Of(z), f.exact(k)})
	}
	return all, nil
}

// timeline is the run's schedule on a clock, by the layers of each chunk alone: a backward is
// twice a forward.
func timeline(c *config.Run, micros int) (*schedule.Timeline, error) {
	parts, err := c.Split().Parts()
	if err != nil {
		return nil, err
	}
	var t schedule.Times
	for _, stage := range parts {
		var f, b []float64
		for _, part := range stage {
			f, b = append(f, float64(len(part.Layers))), append(b, 2*float64(len(part.Layers)))
		}
		t.Forward, t.Backward = append(t.Forward, f), append(t.Backward, b)
	}
	return schedule.Simulate(c.PipelineSchedule(micros, false), t)
}
