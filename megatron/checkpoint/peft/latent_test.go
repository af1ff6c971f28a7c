package peft

import (
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint/hf"
)

// Claim: layers of multi-latent attention refuse adapters by name, also where a target is the
// output projection, which has the name of other attentions'.
func TestLatentAttentionRefusesAdapters(t *testing.T) {
	c, err := hf.ReadConfig(filepath.Join(golden.Dir(t, "model"), "deepseek-v3", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"o_proj": "multi-latent attention", AllLinear: "multi-latent attention"} {
		_, err := Resolve(c.Model, hf.DeepSeekV3, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
}
