package arguments

import (
	"slices"
	"strings"
	"testing"
)

// Claim: --linear-attention-freq N names all layers but every N-th, as in Megatron-LM; what gated
// delta nets cannot be combined with is refused by name.
func TestGatedDeltaNets(t *testing.T) {
	line := func(more string) []string {
		return append(baseline(), strings.Fields("--experimental-attention-variant gdn --linear-num-key-heads 2 --linear-num-value-heads 4 "+more)...)
	}
	c, _, err := ParseWith(everything, line("--linear-attention-freq 3"))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Model.Delta; d.KeyHeads != 2 || d.ValueHeads != 4 || d.KeyDim != 128 || d.Taps != 4 || !slices.Equal(d.Layers, []bool{true, true, false, true}) {
		t.Errorf("%+v", d)
	}
	for more, want := range map[string]string{
		"":                              "--linear-attention-freq",
		"--linear-attention-freq [1]*3": "3 entries",
		"--linear-attention-freq 2 --context-parallel-size 4 --world-size 4":            "--context-parallel-size",
		"--linear-attention-freq 2 --linear-num-value-heads 3":                          "not a multiple",
		"--linear-attention-freq 2 --ckpt-format torch_dist --save x --save-interval 9": "--ckpt-format",
	} {
		if _, _, err := ParseWith(everything, line(more)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", more, err, want)
		}
	}
}
