package peft

import (
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint/hf"
)

// Claim: adapters fit attention and dense MLPs of a model with gated delta nets; the nets'
// own layers refuse them by name.
func TestGatedDeltaNetsRefuseAdapters(t *testing.T) {
	c, err := hf.ReadConfig(filepath.Join(golden.Dir(t, "model"), "qwen3-next", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := Resolve(c.Model, hf.Qwen3Next, Config{R: 2, Alpha: 2, Targets: Names{List: []string{"q_proj", "o_proj"}}})
	if err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
	for _, target := range []string{"in_proj_qkvz", "out_proj"} {
		_, err := Resolve(c.Model, hf.Qwen3Next, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}})
		if err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v", target, err)
		}
		t.Log(err)
	}
}
