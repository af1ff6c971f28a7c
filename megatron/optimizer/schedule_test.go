package optimizer

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

func cosine() Schedule {
	return Schedule{MaxLR: 1e-3, MinLR: 1e-4, WarmupSamples: 10, DecaySamples: 100, Style: DecayCosine,
		StartWD: 0.1, EndWD: 0.1, WDSamples: 100, WDStyle: DecayConstant}
}

// Claim: a scheduler loaded from a state continues where the other stopped.
func TestSchedulerResumes(t *testing.T) {
	a := NewParamScheduler(cosine())
	a.Step(37)
	text, err := json.Marshal(a.State())
	if err != nil {
		t.Fatal(err)
	}
	var st SchedulerState
	if err := json.Unmarshal(text, &st); err != nil {
		t.Fatal(err)
	}
	b := NewParamScheduler(cosine())
	if _, err := b.Load(st, false, false); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		a.Step(8)
		b.Step(8)
		if a.LR() != b.LR() || a.WeightDecay() != b.WeightDecay() {
			t.Fatalf("at %d: %g and %g", a.Samples(), a.LR(), b.LR())
		}
	}
}

// Claim: another schedule in the checkpoint is an error that names every
// difference; --override keeps ours, --use-checkpoint takes theirs; the position
// comes from the checkpoint always (Megatron's load_state_dict).
func TestSchedulerMismatch(t *testing.T) {
	saved := NewParamScheduler(cosine())
	saved.Step(50)
	mine := cosine()
	mine.MaxLR, mine.Style, mine.DecaySamples = 2e-3, DecayLinear, 200

	_, err := NewParamScheduler(mine).Load(saved.State(), false, false)
	if exitcode.CodeOf(err) != exitcode.Usage {
		t.Fatal(err)
	}
	for _, want := range []string{"learning rate: 0.002 in this run, but 0.001", "decay samples: 200 in this run", "decay style: linear in this run", "--override-opt-param-scheduler"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	p := NewParamScheduler(mine)
	if notes, err := p.Load(saved.State(), true, false); err != nil || len(notes) != 3 || p.Schedule != mine || p.Samples() != 50 {
		t.Errorf("override: %v, %v, %+v", notes, err, p)
	}
	p = NewParamScheduler(mine)
	if notes, err := p.Load(saved.State(), false, true); err != nil || len(notes) != 3 || p.Schedule != saved.Schedule || p.LR() != saved.LR() {
		t.Errorf("use checkpoint: %v, %v, %+v", notes, err, p)
	}
	if _, err := p.Load(saved.State(), true, true); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("both: %v", err)
	}
}

// Claim: how long a curve is matters where it is not flat: a run with constant weight
// decay and learning rate continues with more steps than the checkpoint's.
func TestFlatCurvesHaveAnyLength(t *testing.T) {
	for _, c := range []struct {
		lr, decay string
		refused   string
	}{
		{DecayConstant, DecayConstant, ""},
		{DecayConstant, DecayLinear, "weight decay samples: 300 in this run"},
		{DecayCosine, DecayConstant, "\ndecay samples: 300 in this run"},
	} {
		saved := cosine()
		saved.Style, saved.WDStyle = c.lr, c.decay
		mine := saved
		mine.DecaySamples, mine.WDSamples = 300, 300
		p := NewParamScheduler(mine)
		_, err := p.Load(NewParamScheduler(saved).State(), false, false)
		if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || strings.Count(err.Error(), " in this run,") != 1) {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil && p.Schedule != mine {
			t.Errorf("%+v: goes on with %+v", c, p.Schedule)
		}
	}
}

// Claim: a group with limits of its own follows the same curve (--decoupled-lr).
func TestDecoupledRate(t *testing.T) {
	p := NewParamScheduler(cosine())
	p.Step(10)
	if got := p.LRBetween(5e-3, 1e-3); got != 5e-3 {
		t.Errorf("at the peak %g", got)
	}
	p.Step(1000)
	if got := p.LRBetween(5e-3, 1e-3); got != 1e-3 {
		t.Errorf("after the end %g", got)
	}
}

// Claim: without fp16 the scale is 1, or --loss-scale, and never moves.
func TestConstantScale(t *testing.T) {
	c := Config{InitialLossScale: 1 << 32, MinLossScale: 1, LossScaleWindow: 1, LossHysteresis: 1}
	s := NewScaler(&c, false)
	s.Update(true)
	if s.Scale() != 1 || s.Dynamic() {
		t.Errorf("scale %g", s.Scale())
	}
	c.LossScale = 128
	s = NewScaler(&c, true)
	s.Update(false)
	s.Load(ScalerState{Value: 4})
	if s.Scale() != 128 || s.Dynamic() {
		t.Errorf("scale %g", s.Scale())
	}
}

// Claim: a dynamic scaler resumes with its counters.
func TestScalerResumes(t *testing.T) {
	c := Config{InitialLossScale: 1024, MinLossScale: 1, LossScaleWindow: 3, LossHysteresis: 2}
	a, b := NewScaler(&c, true), NewScaler(&c, true)
	for _, overflow := range []bool{true, false, true, false} {
		a.Update(overflow)
	}
	b.Load(a.State())
	for range 3 {
		a.Update(false)
		b.Update(false)
	}
	if a.State() != b.State() || a.Scale() != 1024 {
		t.Errorf("%+v and %+v", a.State(), b.State())
	}
}

// Claim: polynomial and cosine-restarts are transformers' get_polynomial_decay_schedule_with_warmup and
// get_cosine_with_hard_restarts_schedule_with_warmup (5.24; the factors of 10 warm-up steps of 110 in all).
func TestCurvesOfTransformers(t *testing.T) {
	for _, c := range []struct {
		style  string
		power  float64
		cycles int
		want   map[int64]float64 // by sample; of a peak of 1 and a minimum of 0
	}{
		{DecayPower, 2, 0, map[int64]float64{5: 0.5, 10: 1, 35: 0.5625, 60: 0.25, 109: 0.0001}},
		{DecayPower, 1, 0, map[int64]float64{60: 0.5, 85: 0.25}},
		{DecayRestarts, 0, 3, map[int64]float64{5: 0.5, 10: 1, 35: 0.1464466094067262, 60: 0.5, 110: 0}},
	} {
		for at, want := range c.want {
			p := NewParamScheduler(Schedule{MaxLR: 1, WarmupSamples: 10, DecaySamples: 110, Style: c.style, Power: c.power, Cycles: c.cycles})
			p.Step(int(at))
			if got := p.LR(); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s at %d: %g, want %g", c.style, at, got, want)
			}
		}
	}
	a := NewParamScheduler(Schedule{MaxLR: 1, WarmupSamples: 10, DecaySamples: 110, Style: DecayPower, Power: 2})
	b := NewParamScheduler(Schedule{MaxLR: 1, WarmupSamples: 10, DecaySamples: 110, Style: DecayPower, Power: 1})
	if _, err := b.Load(a.State(), false, false); err == nil || !strings.Contains(err.Error(), "decay power") {
		t.Error(err)
	}
}

// Claim: several decays branch from one checkpoint of a WSD run: with --override-opt-param-scheduler each
// starts at the peak where the checkpoint stands, and ends at its own length.
func TestBranchAndDecay(t *testing.T) {
	trunk := Schedule{MaxLR: 1, MinLR: 0.1, WarmupSamples: 10, DecaySamples: 1000, WSDSamples: 100, Style: DecayWSD, WSDStyle: WSDLinear, WDStyle: DecayConstant}
	a := NewParamScheduler(trunk)
	a.Step(400)
	for _, length := range []int64{50, 200} {
		branch := trunk
		branch.DecaySamples, branch.WSDSamples = 400+length, length
		b := NewParamScheduler(branch)
		if _, err := b.Load(a.State(), false, false); err == nil || !strings.Contains(err.Error(), "decay samples") {
			t.Error(err)
		}
		if _, err := b.Load(a.State(), true, false); err != nil || b.LR() != 1 {
			t.Errorf("%v: starts at %g", err, b.LR())
		}
		b.Step(int(length / 2))
		if got, want := b.LR(), 0.1+0.5*0.9; math.Abs(got-want) > 1e-12 {
			t.Errorf("half of %d: %g, want %g", length, got, want)
		}
		if b.Step(int(length - length/2)); math.Abs(b.LR()-0.1) > 1e-12 {
			t.Errorf("end of %d: %g", length, b.LR())
		}
	}
}
