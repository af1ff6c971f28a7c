package preference

import (
	"math"
	"testing"
)

// Claim: a list of losses is their weighted sum, with its slopes; its part sft is a weight by itself; names
// of other methods, and sft alone, are none.
func TestMix(t *testing.T) {
	o := &Options{Beta: 0.3, LabelSmoothing: 0.1, Good: 1.5, Bad: 0.5}
	a, b := Answer{Policy: -7, Reference: -8.5, Predicted: 4, Tokens: 4}, Answer{Policy: -9, Reference: -7.25, Predicted: 6, Tokens: 6}
	l, sft := Mix(DPO, []string{"sigmoid", "bco_pair", "sft"}, []float64{0.8, 0.2, 1})
	if l == nil || sft != 1 || !l.Paired() || !l.Reference || !l.Smoothing || !l.Includes("bco_pair") || l.Includes("hinge") {
		t.Fatalf("%+v, %g", l, sft)
	}
	loss, c, r := l.Pair(o, a, b)
	x, xc, xr := Of(DPO, "sigmoid").Pair(o, a, b)
	y, yc, yr := Of(DPO, "bco_pair").Pair(o, a, b)
	for i, pair := range [][2]float64{{loss, 0.8*x + 0.2*y}, {c, 0.8*xc + 0.2*yc}, {r, 0.8*xr + 0.2*yr}} {
		if math.Abs(pair[0]-pair[1]) > 1e-15 {
			t.Errorf("%d: %g, want %g", i, pair[0], pair[1])
		}
	}
	k, _ := Mix(KTO, []string{"kto", "apo_zero_unpaired"}, nil)
	if k == nil || k.Paired() || !k.Mismatched() {
		t.Fatalf("%+v", k)
	}
	loss, s := k.Single(o, a, true, 0.5)
	x, xs := Of(KTO, "kto").Single(o, a, true, 0.5)
	y, ys := Of(KTO, "apo_zero_unpaired").Single(o, a, true, 0.5)
	if math.Abs(loss-x-y) > 1e-15 || math.Abs(s-xs-ys) > 1e-15 {
		t.Errorf("%g and %g, want %g and %g", loss, s, x+y, xs+ys)
	}
	for _, names := range [][]string{{"sft"}, {"sft", "sft"}, {"sigmoid", "kto"}, {"nothing"}} {
		if l, _ := Mix(DPO, names, nil); l != nil {
			t.Errorf("%v is a loss", names)
		}
	}
	if l, _ := Mix(DPO, []string{"hinge"}, nil); l != Of(DPO, "hinge") {
		t.Error("a list of one is another loss")
	}
}
