package training

import (
	"testing"

	"monotron/csrc/ref"
	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/megatron/config"
	"monotron/megatron/engine"
)

// padded is a sample of n positions, of which so many are filled.
func padded(filled, n int) dataset.Sample {
	return dataset.Sample{Tokens: make([]int32, n), Labels: make([]int32, n), LossMask: make([]float32, n), PositionIDs: make([]int32, n), DocStart: make([]int32, n), Filled: filled}
}

// Claim: a micro-batch is as long as its longest sequence, rounded up; those of a pipeline's step are all
// as long as the longest of them; samples that do not tell where they are filled stay.
func TestPaddingIsCut(t *testing.T) {
	pair := padded(10, 256)
	pair.Also = []dataset.Sample{padded(100, 256)}
	for name, w := range map[string]struct {
		f       Feed
		samples [][]dataset.Sample
		want    []int
	}{
		"each":       {Feed{unit: 64}, [][]dataset.Sample{{padded(3, 256), padded(64, 256)}, {padded(65, 256)}, {padded(250, 256)}}, []int{64, 128, 256}},
		"alike":      {Feed{unit: 64, alike: true}, [][]dataset.Sample{{padded(3, 256)}, {padded(65, 256)}}, []int{128, 128}},
		"not longer": {Feed{unit: 64}, [][]dataset.Sample{{padded(3, 48)}}, []int{48}},
		"pair":       {Feed{unit: 64}, [][]dataset.Sample{{pair}}, []int{128}},
		"not told":   {Feed{unit: 64}, [][]dataset.Sample{{padded(3, 256), padded(0, 256)}}, []int{256}},
		"off":        {Feed{}, [][]dataset.Sample{{padded(3, 256)}}, []int{256}},
	} {
		var batch []*engine.Micro
		var filled []int
		for _, s := range w.samples {
			batch, filled = append(batch, w.f.micro(s, 0)), append(filled, longest(s))
		}
		w.f.shorten(batch, filled)
		for i, m := range batch {
			for k := range m.Tokens {
				if a, b, c, d := len(m.Tokens[k]), len(m.Labels[k]), len(m.LossMask[k]), len(m.PositionIDs[k]); a != w.want[i] || b != a || c != a || d != a {
					t.Errorf("%s: micro-batch %d has %d, %d, %d, %d positions, want %d", name, i, a, b, c, d, w.want[i])
				}
			}
		}
	}
}

// Claim: lengths divide among the ranks that share a sequence; packed rows keep theirs.
func TestLengthUnit(t *testing.T) {
	d := ref.Open()
	defer d.Close()
	for _, w := range []struct {
		packing     string
		cp, tp, out int
	}{{sft.PackNone, 1, 1, 64}, {"", 2, 4, 64}, {"", 3, 1, 192}, {"", 1, 5, 320}, {sft.PackBFD, 1, 1, 0}} {
		c := &config.Run{Tuning: config.Tuning{Data: "rows", Packing: w.packing}}
		c.Layout.CP, c.Layout.TP = w.cp, w.tp
		if got := lengthUnit(c, d); got != w.out {
			t.Errorf("%+v: %d", w, got)
		}
	}
}
