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

// Claim: modules of Nemotron-H have the names of transformers' class, which are not those of files, and a layer's only
// sublayer takes adapters.
func TestNemotronHModules(t *testing.T) {
	c, err := hf.ReadConfig("../../../tools/verify/modelcase/testdata/nemotron3-experts/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"q_proj": "model.layers.1.mixer.q_proj model.layers.3.mixer.q_proj", "up_proj": "model.layers.0.mixer.shared_experts.up_proj model.layers.2.mixer.up_proj", "lm_head": "lm_head"} {
		list, err := Resolve(c.Model, hf.NemotronH, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}})
		if err != nil {
			t.Errorf("%s: %v", target, err)
		}
		var names []string
		for _, a := range list {
			names = append(names, a.Module)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	for _, target := range []string{"in_proj", "out_proj"} {
		if list, err := Resolve(c.Model, hf.NemotronH, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}}); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v %v", target, list, err)
		}
	}
}
