package peft

import (
	"strings"
	"testing"

	"monotron/megatron/checkpoint/hf"
)

// Claim: adapters fit attention and MLPs of a model with state-space scans; the projections of these are
// refused by name.
func TestStateSpaceScansRefuseAdapters(t *testing.T) {
	c, err := hf.ReadConfig("../../../tools/verify/modelcase/testdata/granite4-h/config.json")
	if err != nil {
		t.Fatal(err)
	}
	list, err := Resolve(c.Model, hf.GraniteHybrid, Config{R: 2, Alpha: 2, Targets: Names{List: []string{"q_proj", "output_linear"}}})
	if err != nil || len(list) != 4 {
		t.Errorf("%v %v", list, err)
	}
	for _, target := range []string{"in_proj", "out_proj"} {
		if list, err := Resolve(c.Model, hf.GraniteHybrid, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}}); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v %v", target, list, err)
		}
	}
}
