package training

import (
	"bytes"
	"strings"
	"testing"

	"monotron/csrc/ref"
	"monotron/internal/logging"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/mpu/ranks"
)

// Claim: a run that continues from a checkpoint whose steps the other attention made says so,
// once; from one of the same attention, of another device or of an older version it does not.
func TestResumeReportsOtherAttention(t *testing.T) {
	kept := func(attention string) native.State {
		e := &engine.Engine{Attention: attention, Iteration: 7, Optimizer: &optimizer.Optimizer{}, Scheduler: optimizer.NewParamScheduler(optimizer.Schedule{}),
			Scaler: optimizer.NewScaler(&optimizer.Config{}, false)}
		state, err := (&Run{Job: &Job{}, Engine: e}).state()
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	for _, c := range []struct{ before, now, want string }{
		{engine.Fused, engine.Flash, "iteration 7 was trained with --attention-backend fused, but this run continues with flash"},
		{engine.Flash, engine.Fused, "iteration 7 was trained with --attention-backend flash, but this run continues with fused"},
		{engine.Fused, engine.Fused, ""},
		{"", engine.Flash, ""},
		{engine.Fused, "", ""},
	} {
		var reported bytes.Buffer
		rank := ranks.Alone(ref.Open())
		r := &Run{rank: rank, Engine: &engine.Engine{Attention: c.now}, log: &logger{rank: rank, notes: logging.New(&reported)}}
		r.tellAttention(kept(c.before))
		if got := reported.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%q, then %q: %q", c.before, c.now, got)
		}
	}
}
