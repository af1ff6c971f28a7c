package peft

import (
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint/hf"
)

// Claim: adapters fit attention and MLPs of a model with short convolutions; a name that the
// projections of these have too is refused.
func TestShortConvolutionsRefuseAdapters(t *testing.T) {
	c, err := hf.ReadConfig(filepath.Join(golden.Dir(t, "model"), "lfm2", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := Resolve(c.Model, hf.LFM2, Config{R: 2, Alpha: 2, Targets: Names{List: []string{"q_proj", "w2"}}})
	if err != nil || len(list) != 4 {
		t.Errorf("%v %v", list, err)
	}
	for _, target := range []string{"in_proj", "out_proj"} {
		if list, err := Resolve(c.Model, hf.LFM2, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}}); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v %v", target, list, err)
		}
	}
}
