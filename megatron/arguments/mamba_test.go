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
	// FP8 rounds the projections of scans, in layouts that cut no block.
	for _, more := range []string{"--fp8-format e4m3 --fp8-recipe blockwise --bf16", "--fp8-format hybrid --fp8-recipe tensorwise --tensor-model-parallel-size 2 --world-size 2"} {
		if _, _, err := ParseWith(everything, append(baseline(), strings.Fields("--num-layers 4"+scansLine+" "+more)...)); err != nil {
			t.Errorf("%s: %v", more, err)
		}
	}
	for more, want := range map[string]string{
		"--mamba-num-groups 3": "--mamba-num-groups 3", "--mamba-num-heads 6 --tensor-model-parallel-size 4 --world-size 4": "--mamba-num-heads 6",
		"--mamba-num-heads 8 --tensor-model-parallel-size 4 --world-size 4": "--mamba-num-groups 2", "--mamba-dt-min 1 --mamba-dt-max 0.5": "--mamba-dt-max 0.5 is below",
		"--ckpt-format torch_dist": "--ckpt-format torch_dist", "--short-conv-freq 2": "--short-conv-freq", "--optimizer muon": "--optimizer muon", "--layout-invariant --mamba-num-groups 1 --tensor-model-parallel-size 2 --world-size 2": "groups of B and C are on several ranks",
		"--mamba-layer-freq [1]": "--mamba-layer-freq [1]", "--hybrid-override-pattern M-M*": "--mamba-layer-freq", "--use-mup --mup-base-hidden-size 8": "state-space scans",
		"--fp8-format e4m3 --fp8-recipe blockwise --bf16 --tensor-model-parallel-size 2 --world-size 2":                       "--fp8-format: the layout splits ",
		"--fp8-format e4m3 --fp8-recipe tensorwise --bf16 --mamba-num-groups 1 --tensor-model-parallel-size 2 --world-size 2": "--fp8-format: the layout splits ",
		"--mamba-head-dim 7": "--mamba-head-dim 7", "--mamba-num-heads 1048576 --mamba-head-dim 1048576": "no machine can store that",
	} {
		if _, _, err := ParseWith(everything, append(baseline(), strings.Fields("--num-layers 4"+scansLine+" "+more)...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", more, err, want)
		}
	}
}

const hybridLine = " --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2"

// Claim: Megatron's pattern says which layers there are, under today's name and the one before, with the flags that its
// scripts for such models have; bars divide the layers over stages, and what cannot be combined is refused by name.
func TestHybridPattern(t *testing.T) {
	parse := func(more string) (string, error) {
		t.Helper()
		c, _, err := ParseWith(everything, append(baseline(), strings.Fields(more+hybridLine)...))
		return c.Model.Hybrid() + " " + c.Layout.StageString, err
	}
	for flags, want := range map[string]string{
		"--hybrid-layer-pattern M-M*-": "M-M*- ", "--hybrid-override-pattern M-M*": "M-M* ", "--hybrid-layer-pattern ME*- --num-experts 2": "ME*- ",
		"--is-hybrid-model --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec --hybrid-override-pattern M*": "M* ", "--hybrid-layer-pattern *-*-": "*-*- ",
		"--hybrid-layer-pattern M-|*-M --pipeline-model-parallel-size 2 --world-size 2": "M-*-M Ett|tttL", "--hybrid-layer-pattern M-|*-": "M-*- ",
	} {
		if got, err := parse(flags); err != nil || got != want {
			t.Errorf("%s: %q, %v", flags, got, err)
		}
	}
	c, report, err := ParseWith(everything, append(baseline(), strings.Fields("--hybrid-layer-pattern M-*EM --num-experts 2"+hybridLine)...))
	if err != nil || c.Model.NumLayers != 5 || !slices.Equal(c.Model.Mamba.Layers, []bool{true, false, false, false, true}) || !slices.Equal(c.Model.Experts.Layers, []bool{false, false, false, true, false}) {
		t.Errorf("%v, %d layers, %v, %v", err, c.Model.NumLayers, c.Model.Mamba, c.Model.Experts)
	}
	if !slices.ContainsFunc(report.Notices, func(s string) bool { return strings.Contains(s, "--num-layers 4 has no effect") }) {
		t.Errorf("%q", report.Notices)
	}
	for flags, want := range map[string]string{
		"--is-hybrid-model": "--is-hybrid-model needs --hybrid-layer-pattern", "--spec a b": "Python modules", "--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec": "--hybrid-layer-pattern",
		"--hybrid-layer-pattern M*E": "--num-experts", "--hybrid-layer-pattern M* --num-experts 2": "--num-experts", "--hybrid-layer-pattern M*X": "'X' is not a layer", "--hybrid-layer-pattern MG": "gated delta nets",
		"--hybrid-layer-pattern M*/M*": "multi-token prediction", "--hybrid-layer-pattern |": "names no layers", "--hybrid-layer-pattern M* --moe-layer-freq 2": "--moe-layer-freq", "--hybrid-layer-pattern M* --mamba-layer-freq 2": "--mamba-layer-freq",
		"--hybrid-layer-pattern M* --short-conv-freq 2": "--short-conv-freq", "--hybrid-layer-pattern M* --ckpt-format torch": "--ckpt-format torch", "--hybrid-layer-pattern M-M- --parallel-residual": "--parallel-residual",
		"--hybrid-layer-pattern *-*- --mtp-num-layers 1 --position-embedding-type rope": "--mtp-num-layers", "--hybrid-layer-pattern M- --optimizer muon": "--optimizer muon",
		"--hybrid-layer-pattern M|* --pipeline-model-parallel-size 2 --world-size 2 --num-layers-per-virtual-pipeline-stage 1": "--num-layers-per-virtual-pipeline-stage",
	} {
		if _, err := parse(flags); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}
