package model

import (
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// Claim: what a device's kernels lack is refused by the flag's name before anything is
// computed; without a device, for lists of parameters, nothing is.
func TestLacks(t *testing.T) {
	gpu := &device.Device{Name: "cuda"}
	for flag, m := range map[string]*spec.Model{"--attention-softcap": {ScoreCap: 2}, "--alibi-by-key": {AlibiTable: true}} {
		if err := lacks(gpu, m); err == nil || !strings.HasPrefix(err.Error(), flag) || exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%s: %v", flag, err)
		}
		if err := lacks(nil, m); err != nil {
			t.Errorf("%s without a device: %v", flag, err)
		}
	}
	if err := lacks(nil, &spec.Model{RopeRule: `{"rope_type":"spiral"}`}); err == nil {
		t.Error("a rule that nobody knows is taken")
	}
}

// Claim (docs/models.md): parts that multi-latent attention does not have are refused by flag,
// never left out in silence.
func TestLatentLacks(t *testing.T) {
	for flag, change := range map[string]func(m *spec.Model){
		"no-rope-freq":          func(m *spec.Model) { m.NoRope = []bool{true, false, false} },
		"softmax-type":          func(m *spec.Model) { m.Sinks = true },
		"qk-l2-norm":            func(m *spec.Model) { m.QKL2Norm = true },
		"query-growth":          func(m *spec.Model) { m.QueryGrowth = 0.1 },
		"rope-parameters":       func(m *spec.Model) { m.RopeRule = "{}" },
		"add-proj-bias":         func(m *spec.Model) { m.ProjBias = true },
		"interpolation-factor":  func(m *spec.Model) { m.RotaryInterpolation = 2 },
		"window-rope-parameter": func(m *spec.Model) { m.WindowRope = "{}" },
	} {
		m := spec.Model{NumLayers: 3, Latent: &spec.Latent{RopeDim: 4}}
		change(&m)
		err := lacks(nil, &m)
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "multi-latent") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
