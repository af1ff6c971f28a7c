package spec

import (
	"slices"
	"testing"
)

// Claim: a pattern becomes layers of one sublayer, and these the pattern; parameters and operations are those of the
// sublayers in it, and a model of some of its layers has theirs.
func TestHybridLayers(t *testing.T) {
	m, err := Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHybrid("M-*EM")
	if err != nil {
		t.Fatal(err)
	}
	m.NumLayers, m.Sublayers, m.LinearBias, m.QKVBias, m.Normalization = 5, h.Sublayers, false, false, RMSNorm
	m.Mamba = &Mamba{Heads: 4, Groups: 2, HeadDim: 8, StateDim: 6, Taps: 4, Layers: h.Scans}
	m.Experts = &Experts{Num: 2, FFNHiddenSize: 10, TopK: 1, Layers: h.Experts}
	if m.Hybrid() != "M-*EM" || m.AttendsAt(0) || m.AttendsAt(1) || !m.AttendsAt(2) || !m.MixtureAt(3) || m.LacksSublayers() != "" {
		t.Errorf("%s, %v", m.Hybrid(), m.Sublayers)
	}
	width, ffn := int64(m.HiddenSize), int64(m.FFNHiddenSize)
	want := []int64{m.Mamba.parameters(&m) + width, 2*width*ffn + width, 4*width*width + width, 2*width + 2*2*width*10 + width, m.Mamba.parameters(&m) + width}
	total := int64(m.PaddedVocabSize+m.MaxPositions+1) * width
	for i, n := range want {
		if total += n; m.LayerParameters(i) != n {
			t.Errorf("layer %d has %d parameters, not %d", i, m.LayerParameters(i), n)
		}
	}
	if m.Parameters() != total {
		t.Errorf("%d parameters, not %d", m.Parameters(), total)
	}
	// One token of a sequence of 8.
	w, head := float64(width), float64(width)*float64(m.PaddedVocabSize)
	if got, want := m.FLOPs(1, 8), 6*8*(head+2*m.Mamba.operations(&m)+2*w*float64(ffn)+4*w*w+8*w+2*w*10); got != want {
		t.Errorf("%g operations, not %g", got, want)
	}
	some := m.WithLayers([]int{3, 2, 2, 0})
	if some.Hybrid() != "E**M" || m.Hybrid() != "M-*EM" || !slices.Equal(some.Experts.Layers, []bool{true, false, false, false}) {
		t.Errorf("%s of %s", some.Hybrid(), m.Hybrid())
	}
	for _, wrong := range []string{"", "M-x", "M*/M*", "MG", "M+"} {
		if _, err := ParseHybrid(wrong); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}
