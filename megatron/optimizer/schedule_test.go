package optimizer

import (
	"encoding/json"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

func cosine() Schedule {
	return Schedule{MaxLR: 1e-3, MinLR: 1e-4, WarmupSamples: 10, DecaySamples: 100, Style: DecayCosine,
		StartWD: 0.1, EndWD: 0.1, WDSamples: 100, WDStyle: DecayConstant}
}

// Claim: a scheduler loaded from a state goes on where the other stood.
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
// difference; --override keeps ours, --use-checkpoint takes theirs; the place
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
	for _, want := range []string{"learning rate: 0.002 now, 0.001", "decay samples: 200 now", "decay style: linear now", "--override-opt-param-scheduler"} {
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
// decay and learning rate goes on with more steps than the checkpoint's.
func TestFlatCurvesHaveAnyLength(t *testing.T) {
	for _, c := range []struct {
		lr, decay string
		refused   string
	}{
		{DecayConstant, DecayConstant, ""},
		{DecayConstant, DecayLinear, "weight decay samples: 300 now"},
		{DecayCosine, DecayConstant, "\ndecay samples: 300 now"},
	} {
		saved := cosine()
		saved.Style, saved.WDStyle = c.lr, c.decay
		mine := saved
		mine.DecaySamples, mine.WDSamples = 300, 300
		p := NewParamScheduler(mine)
		_, err := p.Load(NewParamScheduler(saved).State(), false, false)
		if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || strings.Count(err.Error(), " now,") != 1) {
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
