package peft

import (
	"strings"
	"testing"

	"monotron/megatron/checkpoint/hf"
)

// Claim: adapters fit projections of state-space scans, attention and MLPs of Granite 4, and all of them where every linear
// layer is a target.
func TestStateSpaceScansTakeAdapters(t *testing.T) {
	c, err := hf.ReadConfig("../../../tools/verify/modelcase/testdata/granite4-h/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{"q_proj": 1, "output_linear": 3, "in_proj": 2, "out_proj": 2, AllLinear: 14} {
		list, err := Resolve(c.Model, hf.GraniteHybrid, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}})
		if err != nil || len(list) != want {
			t.Errorf("%s: %d adapters, want %d: %v", target, len(list), want, err)
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
	for target, want := range map[string]string{"q_proj": "model.layers.1.mixer.q_proj model.layers.3.mixer.q_proj", "up_proj": "model.layers.0.mixer.shared_experts.up_proj model.layers.2.mixer.up_proj", "lm_head": "lm_head",
		"in_proj": "model.layers.4.mixer.in_proj"} {
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
	for _, target := range []string{"out_proj", "conv1d"} { // as in PEFT
		if list, err := Resolve(c.Model, hf.NemotronH, Config{R: 2, Alpha: 2, Targets: Names{List: []string{target}}}); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v %v", target, list, err)
		}
	}
}
