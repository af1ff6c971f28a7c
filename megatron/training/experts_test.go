package training

import (
	"bytes"
	"strings"
	"testing"

	"monotron/megatron/report"
	"monotron/mpu/ranks"
	"monotron/notes"
)

// TestTellUneven: an expert without a token, or with too many, is told of once, by layer and
// number; in a step of few tokens nothing is.
func TestTellUneven(t *testing.T) {
	var out bytes.Buffer
	l := &logger{notes: notes.New(&out), rank: &ranks.Rank{}, config: &Config{Log: Log{ImbalanceLimit: 2}}}
	few := []report.MixtureLayer{{Number: 1, Tokens: []float64{0, 4, 0, 4}}}
	many := []report.MixtureLayer{{Number: 1, Tokens: []float64{0, 100, 50, 250}}, {Number: 3, Tokens: []float64{100, 100, 100, 100}}}
	for _, step := range [][]report.MixtureLayer{few, many, many} {
		l.tellUneven(step)
	}
	want := "layer 1: expert 0 got no token (0 tokens of 100 in an even step); it is said once\n" +
		"layer 1: expert 3 got 2.5 times an even part, more than --moe-imbalance-limit 2 (250 tokens of 100 in an even step); it is said once\n"
	if got := out.String(); got != want {
		t.Errorf("told\n%swant\n%s", got, want)
	}
	if strings.Contains(out.String(), "layer 3") {
		t.Error("an even layer is told of")
	}
}
