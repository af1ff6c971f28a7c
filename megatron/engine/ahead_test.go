package engine

import (
	"math"
	"reflect"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Claim: rows move to the left, zeros come in at their ends, also beyond their length.
func TestMoved(t *testing.T) {
	rows := [][]int32{{1, 2, 3}, {4, 5, 6}}
	for d, want := range [][][]int32{{{1, 2, 3}, {4, 5, 6}}, {{2, 3, 0}, {5, 6, 0}}, {{3, 0, 0}, {6, 0, 0}}, {{0, 0, 0}, {0, 0, 0}}, {{0, 0, 0}, {0, 0, 0}}} {
		if got := moved(rows, d); !reflect.DeepEqual(got, want) {
			t.Errorf("moved by %d: %v, want %v", d, got, want)
		}
	}
}

// Claim: a depth's tokens weigh the mean over its own unmasked ones, times the factor by depths;
// per token that is scaled to the tokens of the next one's loss; where each context-parallel
// rank takes its own mean, its own tokens count.
func TestWeightsAhead(t *testing.T) {
	m := &Micro{Tokens: [][]int32{{1, 2, 3, 4, 5, 6, 7, 8}}, Labels: [][]int32{{2, 3, 4, 5, 6, 7, 8, 9}}, LossMask: [][]float32{{1, 1, 0, 1, 1, 0, 1, 1}}}
	// Moved by 1 the mask is 1 0 1 1 0 1 1 0, five of six. Rank 0 of two has positions 0, 1, 6 and 7:
	// 1 0 1 0 of 1 1 1 1.
	for _, c := range []struct {
		perToken, own bool
		want          [4]float64 // of the unmasked tokens here
	}{
		{false, false, [4]float64{1.0 / 5 / 3, 0, 1.0 / 5 / 3, 0}},
		{true, false, [4]float64{6.0 / 5, 0, 6.0 / 5, 0}},
		{false, true, [4]float64{1.0 / 2 / 3 / 2, 0, 1.0 / 2 / 3 / 2, 0}},
		{true, true, [4]float64{4.0 / 2, 0, 4.0 / 2, 0}},
	} {
		d := ref.Open()
		e := &Engine{device: d, rank: &ranks.Rank{Sizes: topology.Sizes{TP: 1, PP: 1, DP: 1, CP: 2}}}
		e.config = config.Step{Model: spec.Model{MTP: &spec.MTP{Depths: 1, LossScale: 0.5}}, CalculatePerTokenLoss: c.perToken, LossMeanPerContextRank: c.own}
		s := d.Arena.Scope(device.Workspace)
		all := e.loadAhead(s, m, mpu.AllPositions(8).ZigZag(0, 2), 3)
		if ids := device.ReadSlice[int32](d, all[0].IDs); !reflect.DeepEqual(ids, []int32{2, 3, 8, 0}) {
			t.Errorf("tokens %v", ids)
		}
		for i, got := range device.ReadSlice[float32](d, all[0].Weight) {
			if math.Abs(float64(got)-0.5*c.want[i]) > 1e-6 {
				t.Errorf("%+v: weight %d is %g, want %g", c, i, got, 0.5*c.want[i])
			}
		}
		s.Release()
		d.Close()
	}
}
