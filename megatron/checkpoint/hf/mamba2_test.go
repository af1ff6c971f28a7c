package hf

import (
	"fmt"
	"strings"
	"testing"
)

// Claim: config.json of Mamba-2 is read as transformers 5.24's Mamba2Config reads it, defaults of absent keys included.
func TestMamba2Configs(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"model_type": "mamba2"}`))
	if err != nil {
		t.Fatal(err)
	}
	m, s := c.Model, c.Model.Mamba
	if m.VocabSize != 32768 || m.HiddenSize != 4096 || m.NumLayers != 64 || m.Hybrid() != strings.Repeat("M", 64) || m.Tied || m.NormEpsilon != 1e-5 {
		t.Errorf("%+v", m)
	}
	if s.Heads != 128 || s.HeadDim != 64 || s.Groups != 8 || s.StateDim != 128 || s.Taps != 4 || !s.ConvBias || s.DtMin != 0 || s.DtMax != 0 {
		t.Errorf("%+v", s)
	}
}

// Claim: what is not supported, and sizes that contradict each other, are refused by name.
func TestMamba2Refusals(t *testing.T) {
	for key, value := range map[string]string{"use_bias": "true", "rms_norm": "false", "hidden_act": `"relu"`, "num_heads": "64", "expand": "3", "n_groups": "7", "state_size": "8388608", "conv_kernel": "0",
		"time_step_limit": "[2, 1]", "d_conv": "4"} {
		if _, err := ParseConfig("config.json", fmt.Appendf(nil, `{"model_type": "mamba2", %q: %s}`, key, value)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %s: %v", key, value, err)
		}
	}
}
