package optimizer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"monotron/internal/argv"
	"monotron/internal/elementary"
	"monotron/internal/exitcode"
)

// Schedule is the course of learning rate and weight decay, in samples.
type Schedule struct {
	InitLR, MaxLR, MinLR float64
	WarmupSamples        float64 // a fraction of a decay length need not be an integer
	DecaySamples         int64
	WSDSamples           int64 // length of the final descent of WSD
	Style, WSDStyle      string
	Power                float64 // of DecayPower
	Cycles               int     // of DecayRestarts

	StartWD, EndWD float64
	WDSamples      int64
	WDStyle        string // constant, linear, cosine
}

// ParamScheduler walks along a Schedule. It counts samples, not iterations, so
// that a change of the batch size does not bend the curve. It is stepped after
// an optimizer step that was not skipped: iteration 1 runs at LR() of a fresh
// scheduler. Source: megatron/core/optimizer_param_scheduler.py.
type ParamScheduler struct {
	Schedule
	samples int64
}

// NewParamScheduler starts at sample 0.
func NewParamScheduler(s Schedule) *ParamScheduler { return &ParamScheduler{Schedule: s} }

// Step advances by the samples of one global batch.
func (p *ParamScheduler) Step(samples int) { p.samples += int64(samples) }

// Samples is how far the scheduler has come.
func (p *ParamScheduler) Samples() int64 { return p.samples }

// LR is the learning rate of the next step.
func (p *ParamScheduler) LR() float64 { return p.LRBetween(p.MaxLR, p.MinLR) }

// LRBetween is the rate of a parameter group with limits of its own
// (--decoupled-lr, --decoupled-min-lr).
func (p *ParamScheduler) LRBetween(maxLR, minLR float64) float64 {
	n := float64(p.samples)
	if p.WarmupSamples > 0 && n <= p.WarmupSamples {
		return p.InitLR + (maxLR-p.InitLR)*n/p.WarmupSamples
	}
	if p.Style == DecayConstant {
		return maxLR
	}
	if p.samples > p.DecaySamples {
		return minLR
	}
	if p.Style == DecayInvSqrt {
		return max(minLR, maxLR*math.Sqrt(max(p.WarmupSamples, 1))/math.Sqrt(max(n, 1)))
	}
	return minLR + float64(p.coefficient(n)*(maxLR-minLR))
}

// fall is a curve from 1 at 0 to 0 at 1.
type fall func(ratio float64) float64

func alongLine(ratio float64) float64   { return 1 - ratio }
func alongCosine(ratio float64) float64 { return 0.5 * (elementary.Cos(math.Pi*ratio) + 1) }

// The curves by their names on the command line, which accepts no others. nil: LRBetween or coefficient has a
// branch for the style, since its curve depends on more than the ratio.
var (
	decays = map[string]fall{DecayConstant: nil, DecayLinear: alongLine, DecayCosine: alongCosine, DecayInvSqrt: nil, DecayWSD: nil,
		DecayPower: nil, DecayRestarts: nil}
	wsdDecays = map[string]fall{WSDLinear: alongLine, WSDCosine: alongCosine, WSDMinusSqrt: func(ratio float64) float64 { return 1 - math.Sqrt(ratio) },
		WSDExponential: func(ratio float64) float64 { return float64(2*elementary.Pow(0.5, ratio)) - 1 }}
	wdRises = map[string]fall{DecayConstant: nil, DecayLinear: func(ratio float64) float64 { return ratio }, DecayCosine: func(ratio float64) float64 { return alongCosine(1 - ratio) }}
)

// coefficient falls from 1 to 0 between the end of the warm-up and the end of
// the decay.
func (p *ParamScheduler) coefficient(n float64) float64 {
	if p.Style == DecayWSD {
		start := float64(p.DecaySamples - p.WSDSamples)
		if n <= start {
			return 1
		}
		return wsdDecays[p.WSDStyle]((n - start) / float64(p.WSDSamples))
	}
	ratio := (n - p.WarmupSamples) / (float64(p.DecaySamples) - p.WarmupSamples)
	switch p.Style {
	case DecayPower:
		return elementary.Pow(1-ratio, p.Power)
	case DecayRestarts:
		if ratio >= 1 {
			return 0
		}
		return alongCosine(math.Mod(float64(p.Cycles)*ratio, 1))
	}
	return decays[p.Style](ratio)
}

// WeightDecay is the decay of the next step, for parameters that decay at all.
func (p *ParamScheduler) WeightDecay() float64 {
	if p.samples > p.WDSamples || p.WDStyle == DecayConstant {
		return p.EndWD
	}
	return p.StartWD + float64(wdRises[p.WDStyle](float64(p.samples)/float64(p.WDSamples))*(p.EndWD-p.StartWD))
}

// styles is an error if the name of a curve is unknown.
func (s *Schedule) styles() error {
	for _, one := range []struct {
		flag, name string
		known      map[string]fall
		asked      bool
	}{{"--lr-decay-style", s.Style, decays, true}, {"--lr-wsd-decay-style", s.WSDStyle, wsdDecays, s.Style == DecayWSD}, {"--weight-decay-incr-style", s.WDStyle, wdRises, true}} {
		if _, known := one.known[one.name]; one.asked && !known {
			return exitcode.Errorf(exitcode.Usage, "%s must be %s, not %s", one.flag, argv.Or(slices.Sorted(maps.Keys(one.known))...), argv.Shown(one.name))
		}
	}
	return nil
}

// SchedulerState is what a checkpoint keeps; the JSON names are those of
// Megatron's opt_param_scheduler state.
type SchedulerState struct {
	MaxLR         float64 `json:"max_lr"`
	MinLR         float64 `json:"min_lr"`
	WarmupSamples float64 `json:"lr_warmup_steps"`
	DecaySamples  int64   `json:"lr_decay_steps"`
	Style         string  `json:"lr_decay_style"`
	Samples       int64   `json:"num_steps"`
	StartWD       float64 `json:"start_wd"`
	EndWD         float64 `json:"end_wd"`
	WDSamples     int64   `json:"wd_incr_steps"`
	WDStyle       string  `json:"wd_incr_style"`
	Power         float64 `json:"lr_decay_power,omitempty"` // of styles that Megatron lacks
	Cycles        int     `json:"lr_decay_cycles,omitempty"`
}

// State is the scheduler's state for a checkpoint.
func (p *ParamScheduler) State() SchedulerState {
	s := SchedulerState{MaxLR: p.MaxLR, MinLR: p.MinLR, WarmupSamples: p.WarmupSamples, DecaySamples: p.DecaySamples, Style: p.Style, Samples: p.samples,
		StartWD: p.StartWD, EndWD: p.EndWD, WDSamples: p.WDSamples, WDStyle: p.WDStyle}
	switch p.Style {
	case DecayPower:
		s.Power = p.Power
	case DecayRestarts:
		s.Cycles = p.Cycles
	}
	return s
}

// constant reports whether both curves are flat: how long they are then changes nothing.
func constant(mine, saved string) bool { return mine == DecayConstant && saved == DecayConstant }

// Load continues from a checkpoint's state. The position always comes from the
// checkpoint. The curve must be the same on both sides, unless override keeps
// this scheduler's (--override-opt-param-scheduler) or useCheckpoint takes the
// checkpoint's (--use-checkpoint-opt-param-scheduler). The notes say which
// values changed hands; the error names every value that disagrees.
func (p *ParamScheduler) Load(st SchedulerState, override, useCheckpoint bool) (notes []string, err error) {
	if override && useCheckpoint {
		return nil, exitcode.Errorf(exitcode.Usage, "--override-opt-param-scheduler cannot be combined with --use-checkpoint-opt-param-scheduler; leave one out")
	}
	// reconcile decides one value: equal, the command line's, the checkpoint's, or a problem.
	var problems []error
	reconcile := func(what string, same bool, mine, saved any, take func()) {
		switch {
		case same:
		case override:
			notes = append(notes, fmt.Sprintf("%s: the value %v of the command line replaces %v of the checkpoint", what, mine, saved))
		case useCheckpoint:
			notes = append(notes, fmt.Sprintf("%s: the value %v of the checkpoint replaces %v", what, saved, mine))
			take()
		default:
			problems = append(problems, fmt.Errorf("%s: %v in this run, but %v in the checkpoint", what, mine, saved))
		}
	}
	// The learning rate's curve. Lengths do not matter to a constant one; power and cycles have defaults that
	// depend on the style, and are compared under the same style only.
	reconcile("learning rate", p.MaxLR == st.MaxLR, p.MaxLR, st.MaxLR, func() { p.MaxLR = st.MaxLR })
	reconcile("minimum learning rate", p.MinLR == st.MinLR, p.MinLR, st.MinLR, func() { p.MinLR = st.MinLR })
	reconcile("warm-up samples", p.WarmupSamples == st.WarmupSamples, p.WarmupSamples, st.WarmupSamples, func() { p.WarmupSamples = st.WarmupSamples })
	reconcile("decay samples", p.DecaySamples == st.DecaySamples || constant(p.Style, st.Style), p.DecaySamples, st.DecaySamples, func() { p.DecaySamples = st.DecaySamples })
	reconcile("decay style", p.Style == st.Style, p.Style, st.Style, func() { p.Style, p.Power, p.Cycles = st.Style, st.Power, st.Cycles })
	if p.Style == st.Style {
		mine := p.State()
		reconcile("decay power", mine.Power == st.Power, mine.Power, st.Power, func() { p.Power = st.Power })
		reconcile("decay cycles", mine.Cycles == st.Cycles, mine.Cycles, st.Cycles, func() { p.Cycles = st.Cycles })
	}
	// The weight decay's curve.
	reconcile("start weight decay", p.StartWD == st.StartWD, p.StartWD, st.StartWD, func() { p.StartWD = st.StartWD })
	reconcile("end weight decay", p.EndWD == st.EndWD, p.EndWD, st.EndWD, func() { p.EndWD = st.EndWD })
	reconcile("weight decay samples", p.WDSamples == st.WDSamples || constant(p.WDStyle, st.WDStyle), p.WDSamples, st.WDSamples, func() { p.WDSamples = st.WDSamples })
	reconcile("weight decay style", p.WDStyle == st.WDStyle, p.WDStyle, st.WDStyle, func() { p.WDStyle = st.WDStyle })
	if len(problems) > 0 {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("the checkpoint was trained with a different schedule:\n%w\ngive --override-opt-param-scheduler to continue with the schedule of the command line, or --use-checkpoint-opt-param-scheduler to continue with that of the checkpoint", errors.Join(problems...)))
	}
	p.samples = st.Samples
	return notes, p.styles()
}
