package engine

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu/ranks"
)

// layoutConfig is tinyConfig with enough layers and heads to cut.
func layoutConfig(l Layout) Config {
	c := tinyConfig()
	c.Model.NumLayers, c.Model.NumAttentionHeads, c.Model.NumQueryGroups, c.Model.KVChannels = 4, 4, 4, 4
	l.VP = max(1, l.VP)
	c.Layout = l
	return c
}

// runLayout trains `steps` steps on the same global batch under a layout and
// gives the losses that the last rank saw.
func runLayout(t *testing.T, c Config, steps int) (losses []float64) {
	t.Helper()
	var mu sync.Mutex
	batch := testBatch(8, 1, c.SeqLength)
	err := ranks.Run(c.Ranks(func() (*device.Device, error) { return ref.Open(), nil }), func(r *ranks.Rank) error {
		s, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
		if err != nil {
			return err
		}
		e, err := New(r, c, s)
		if err != nil {
			return err
		}
		if err := e.Initialize(); err != nil {
			return err
		}
		var mine []*Micro
		for i := r.Place.DP; i < len(batch); i += r.Sizes.DP {
			mine = append(mine, batch[i])
		}
		for range steps {
			result, err := e.Step(mine)
			if err != nil {
				return err
			}
			if r.Last() {
				mu.Lock()
				losses = append(losses, result.Loss)
				mu.Unlock()
			}
		}
		sum, tokens, err := e.Loss(mine)
		if r.Last() && err == nil {
			losses = append(losses, sum/tokens)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%+v: %v", c.Layout, err)
	}
	return losses
}

// Claim: no layout changes the losses of training beyond rounding.
func TestLayoutsTrainAlike(t *testing.T) {
	want := runLayout(t, layoutConfig(Layout{}), 3)
	for _, l := range []Layout{
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
