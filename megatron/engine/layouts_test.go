package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/mpu/ranks"
)

// layoutConfig is tinyConfig with enough layers and heads to cut.
func layoutConfig(l config.Layout) config.Step {
	c := tinyConfig()
	c.Model.NumLayers, c.Model.NumAttentionHeads, c.Model.NumQueryGroups, c.Model.KVChannels = 4, 4, 4, 4
	l.VP = max(1, l.VP)
	c.Layout = l
	return c
}

// runLayout trains `steps` steps on the same global batch under a layout and
// gives the losses that the last rank saw.
func runLayout(t *testing.T, c config.Step, steps int) (losses []float64) {
	t.Helper()
	results, loss := trainLayout(t, c, steps)
	for _, r := range results {
		losses = append(losses, r.Loss)
	}
	return append(losses, loss)
}

// begun is a rank's engine before its first step, and which micro-batches are the rank's.
func begun(r *ranks.Rank, c config.Step, batch []*Micro) (e *Engine, mine []*Micro, err error) {
	s, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
	if err != nil {
		return nil, nil, err
	}
	if e, err = New(r, c, s); err != nil {
		return nil, nil, err
	}
	for i := r.Coordinates.DP; i < len(batch); i += r.Sizes.DP {
		mine = append(mine, batch[i])
	}
	return e, mine, e.Initialize()
}

// trainLayout gives what the last rank saw of each step, and the loss after them; each
// rank's engine is shown to `after`.
func trainLayout(t *testing.T, c config.Step, steps int, after ...func(e *Engine)) (results []Result, loss float64) {
	t.Helper()
	batch := testBatch(8, 1, c.SeqLength)
	err := ranks.Run(Ranks(&c, func() (*device.Device, error) { return ref.Open(), nil }), func(r *ranks.Rank) error {
		e, mine, err := begun(r, c, batch)
		if err != nil {
			return err
		}
		for range steps {
			result, err := e.Step(mine)
			if err != nil {
				return err
			}
			if r.Last() {
				results = append(results, result)
			}
		}
		sum, tokens, err := e.Loss(mine)
		if r.Last() && err == nil {
			loss = sum / tokens
		}
		for _, see := range after {
			see(e)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%+v: %v", c.Layout, err)
	}
	return results, loss
}

// Claim: what flows backward is as large under every layout, so that fp16 skips the
// same steps: the scale that a run finds does not depend on how many ranks share the batch.
func TestLayoutsSkipAlike(t *testing.T) {
	history := func(l config.Layout) (scales []float64) {
		c := layoutConfig(l)
		c.Precision, c.Optimizer.InitialLossScale, c.Optimizer.MinLossScale = config.FP16, 1<<32, 1
		c.Optimizer.LossScaleWindow, c.Optimizer.LossHysteresis = 1000, 1
		results, _ := trainLayout(t, c, 24)
		for _, r := range results {
			scales = append(scales, r.Scale)
		}
		return scales
	}
	want := history(config.Layout{})
	if found := want[len(want)-1]; found == 1<<32 || found != want[len(want)-2] {
		t.Fatalf("one rank's scales do not come to rest: %g", want)
	}
	for _, l := range []config.Layout{{DP: 2}, {DP: 4}, {DP: 8}, {DP: 2, TP: 2}, {DP: 2, PP: 2}} {
		if got := history(l); !slices.Equal(got, want) {
			t.Errorf("%+v: scales %g, on one rank %g", l.Sizes(), got, want)
		}
	}
}

// Claim: no layout changes the losses of training beyond rounding.
func TestLayoutsTrainAlike(t *testing.T) {
	want := runLayout(t, layoutConfig(config.Layout{}), 3)
	for _, l := range []config.Layout{
		{TP: 2}, {TP: 4}, {TP: 2, SequenceParallel: true}, {PP: 2}, {PP: 4}, {PP: 2, VP: 2}, {DP: 2}, {DP: 4},
		{TP: 2, PP: 2, SequenceParallel: true}, {TP: 2, PP: 2, DP: 2}, {TP: 2, PP: 2, DP: 2, VP: 2, SequenceParallel: true},
	} {
		t.Run(fmt.Sprintf("%+v", l.Sizes()), func(t *testing.T) {
			got := runLayout(t, layoutConfig(l), 3)
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-5*want[i] {
					t.Errorf("step %d: loss %.7f, on one rank %.7f", i, got[i], want[i])
				}
			}
		})
	}
}
