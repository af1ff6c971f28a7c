package ref

import (
	"math"
	"testing"

	"monotron/csrc/device"
)

// Claim: a weight is 2^44·e^d to the nearest integer but for one, falls with d, and is
// nothing below e^−32.
func TestWeights(t *testing.T) {
	if weight(0) != device.SampleFull || weight(math.Inf(-1)) != 0 || weight(-32.001) != 0 {
		t.Errorf("weights of 1, 0 and e^−32.001: %d, %d, %d", weight(0), weight(math.Inf(-1)), weight(-32.001))
	}
	last := weight(0)
	for i := range 64001 {
		d := -float64(i) / 2000
		w, want := weight(d), math.Round(device.SampleFull*math.Exp(d))
		if math.Abs(float64(w)-want) > 1 || w > last {
			t.Fatalf("e^%g weighs %d, want %g; before it %d", d, w, want, last)
		}
		last = w
	}
}

// Claim: the token is the one at which the likeliest together pass the drawn share of those that
// the rules leave; worked out by hand.
func TestSampleKnown(t *testing.T) {
	d := Open()
	logits := make([]float32, 5)
	for i, p := range []float64{0.1, 0.4, 0.05, 0.25, 0.2} { // by rank: 1, 3, 4, 0, 2
		logits[i] = float32(math.Log(p))
	}
	ban := []float32{1, float32(math.Inf(-1))}
	for _, c := range []struct {
		temperature, topP, minP float64
		topK                    int32
		share                   float64 // drawn
		edited                  int32
		edit                    []float32
		want                    int32
	}{
		{want: 1}, {edited: 1, edit: ban, want: 3}, {edited: 2, edit: []float32{4, 0}, want: 1}, {edited: 2, edit: []float32{1, 3}, want: 2},
		{temperature: 1, share: 0.39, want: 1}, {temperature: 1, share: 0.41, want: 3}, {temperature: 1, share: 0.64, want: 3}, {temperature: 1, share: 0.66, want: 4},
		{temperature: 1, share: 0.86, want: 0}, {temperature: 1, share: 0.96, want: 2}, {temperature: 1, share: 0.999, want: 2},
		{temperature: 1, topK: 2, share: 0.61, want: 1}, {temperature: 1, topK: 2, share: 0.62, want: 3}, {temperature: 1, topK: 2, share: 0.999, want: 3},
		{temperature: 1, topP: 0.6, share: 0.999, want: 3}, {temperature: 1, topP: 0.66, share: 0.999, want: 4}, {temperature: 1, topP: 1e-300, share: 0.999, want: 1},
		{temperature: 1, minP: 0.6, share: 0.999, want: 3}, {temperature: 1, minP: 0.49, share: 0.999, want: 4}, {temperature: 1, topP: 0.95, topK: 2, share: 0.999, want: 3},
		{temperature: 0.5, share: 0.58, want: 1}, {temperature: 0.5, share: 0.59, want: 3}, // squares: 0.16 of 0.275
		{temperature: 1, share: 0, edited: 1, edit: ban, want: 3},
	} {
		s := d.Arena.Scope(device.Workspace)
		a := device.SampleArgs{IDs: s.Alloc(device.I32, 1), Chosen: s.Alloc(device.F32, 1), Logits: s.Alloc(device.F32, 1, 5), Rules: s.Alloc(device.I32, 1, 4),
			Numbers: s.Alloc(device.F64, 1, 3), Columns: 5}
		device.WriteSlice(d, a.Logits, logits)
		device.WriteSlice(d, a.Rules, []int32{-1, c.topK, int32(uint32(c.share * (1 << 32))), 0})
		device.WriteSlice(d, a.Numbers, []float64{c.temperature, c.topP, c.minP})
		if c.edit != nil {
			a.EditIDs, a.EditValues = s.Alloc(device.I32, 1), s.Alloc(device.F32, 1, 2)
			device.WriteSlice(d, a.EditIDs, []int32{c.edited})
			device.WriteSlice(d, a.EditValues, c.edit)
		}
		d.Sample(a)
		if got := device.ReadSlice[int32](d, a.IDs)[0]; got != c.want {
			t.Errorf("%+v: token %d", c, got)
		} else if x := device.ReadSlice[float32](d, a.Chosen)[0]; x != logits[got] {
			t.Errorf("%+v: logit %g, want %g", c, x, logits[got])
		}
		s.Release()
	}
}
