package spec

import (
	"math"
	"testing"
)

// Claim: frequencies, the factor of cosines and sines and the scale of scores are those that
// Megatron-LM made for golden/model/mla (its config_in_plain_names).
func TestLatentYarn(t *testing.T) {
	l := &Latent{QKDim: 8, RopeDim: 8, VDim: 6, Yarn: true, Factor: 4, MScale: 0.707, MScaleAllDim: 1, OriginalMax: YarnOriginalMax, FastTurns: YarnFastTurns, SlowTurns: YarnSlowTurns}
	for i, want := range []float64{1, 0.21147425268811282, 0.036336104634371584, 0.005910885056269848} {
		if got := l.frequencies(500)[i]; math.Abs(got-want) > 1e-7*want { // made in f32
			t.Errorf("frequency %d is %v, want %v", i, got, want)
		}
	}
	if got, want := l.tableFactor(), 0.964326914892074; math.Abs(got-want) > 1e-12 {
		t.Errorf("factor of cosines %v, want %v", got, want)
	}
	m := 0.1*math.Log(4) + 1
	if got := l.scoreScale(); math.Abs(got-m*m/4) > 1e-12 {
		t.Errorf("scale %v, want %v", got, m*m/4)
	}
}
