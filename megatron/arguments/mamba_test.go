package arguments

import (
	"slices"
	"strings"
	"testing"
)

const scansLine = " --mamba-layer-freq 4 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2"

// Claim: Megatron's flags describe state-space scans, with twice the hidden size as their width, and what these
// cannot be combined with is refused by name.
func TestStateSpaceScans(t *testing.T) {
	c, _, err := Parse(append(baseline(), strings.Fields("--num-layers 4 --mamba-state-dim 5 --mamba-dt-max 0.5"+scansLine)...))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Model.Mamba
	if s.Inner() != 2*c.Model.HiddenSize || s.Groups != 2 || s.StateDim != 5 || s.Taps != 4 || !s.ConvBias || s.DtMax != 0.5 || !slices.Equal(s.Layers, []bool{true, true, true, false}) {
		t.Errorf("%+v", s)
	}
	for more, want := range map[string]string{
		"--mamba-num-groups 3": "--mamba-num-groups 3", "--mamba-num-heads 6 --tensor-model-parallel-size 4 --world-size 4": "--mamba-num-heads 6",
		"--mamba-num-heads 8 --tensor-model-parallel-size 4 --world-size 4": "--mamba-num-groups 2", "--mamba-dt-min 1 --mamba-dt-max 0.5": "--mamba-dt-max 0.5 is below",
		"--ckpt-format torch_dist": "--ckpt-format torch_dist", "--short-conv-freq 2": "--short-conv-freq", "--optimizer muon": "--optimizer muon", "--layout-invariant --mamba-num-groups 1 --tensor-model-parallel-size 2 --world-size 2": "groups of B and C are on several ranks",
		"--mamba-layer-freq [1]": "--mamba-layer-freq [1]", "--hybrid-override-pattern M-M*": "--mamba-layer-freq", "--fp8-format e4m3 --fp8-recipe blockwise --bf16": "state-space scans",
		"--mamba-head-dim 7": "--mamba-head-dim 7", "--mamba-num-heads 1048576 --mamba-head-dim 1048576": "no machine can store that",
	} {
		if _, _, err := ParseWith(everything, append(baseline(), strings.Fields("--num-layers 4"+scansLine+" "+more)...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", more, err, want)
		}
	}
}
