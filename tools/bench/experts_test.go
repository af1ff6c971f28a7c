package bench

import (
	"testing"

	"monotron/csrc/ref"
	"monotron/megatron/spec"
)

// TestExtraShapes: the shapes of bench experts cost a token alike, and a turn of each is reported.
func TestExtraShapes(t *testing.T) {
	m, err := spec.Preset("moe-237m")
	if err != nil {
		t.Fatal(err)
	}
	if err := alike(extraShapes(m)); err != "" {
		t.Error(err)
	}
	m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels, m.Experts.FFNHiddenSize = 8, 8, 2, 2, 4, 8
	times, o := extraShapes(m), options{model: m, batch: 2, seq: 8, steps: 1, precision: "f32"}
	for i := range times {
		d := ref.Open()
		defer d.Close()
		if err := times[i].begin(d, o); err != nil {
			t.Fatal(err)
		}
	}
	if err := alternating(times, o); err != nil {
		t.Fatal(err)
	}
	for i := range times {
		times[i].sum(o, times[0].FLOPs)
		if x := times[i]; len(x.took) != 1 || !(x.Tokens > 0) || !(x.OfDense > 0) || !(x.Memory > 0) || (x.Travel > 0) != (i > 0) || (x.Products > 0) != (i > 0) {
			t.Errorf("%+v", x)
		}
	}
}

// alike says which shape costs more than the first.
func alike(times []mixtureTime) string {
	for _, x := range times {
		if x.model.FLOPs(1, 64) != times[0].model.FLOPs(1, 64) {
			return x.Shape + " costs otherwise than " + times[0].Shape
		}
	}
	return ""
}
