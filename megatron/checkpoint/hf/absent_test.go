package hf

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monotron/megatron/spec"
)

// kind is a config.json with every key of its class, and the values that the class has where a key is absent.
type kind struct {
	Config map[string]any
	Absent map[string]map[string]any
}

func kinds(t *testing.T) (list map[string]kind) {
	t.Helper()
	raw, err := os.ReadFile("testdata/defaults.json")
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readConfig(t *testing.T, c map[string]any) (*Config, error) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig(ConfigName, text)
}

// Claim: a config.json that lacks a key is read as transformers' class reads it, or is refused; its default is nowhere
// another one. Source: the classes themselves (tests/proofs/checkpoints/defaults.py).
func TestDefaultsOfClasses(t *testing.T) {
	t.Parallel()
	refused, equal := 0, 0
	all := kinds(t)
	for kind, k := range all {
		if _, err := readConfig(t, k.Config); err != nil {
			t.Errorf("%s: the complete config: %v", kind, err)
			continue
		}
		for key, values := range k.Absent {
			without, filled := maps.Clone(k.Config), maps.Clone(k.Config)
			maps.Copy(filled, values)
			delete(without, key)
			got, err := readConfig(t, without)
			if err != nil { // a size must be there
				refused++
				continue
			}
			want, err := readConfig(t, filled)
			if err != nil {
				t.Errorf("%s without %s is read, but as transformers completes it, it is refused: %v", kind, key, err)
				continue
			}
			equal++
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s without %s, of which transformers makes %v:\n%s", kind, key, values[key], diff)
			}
		}
	}
	t.Logf("%d kinds of configs; without a key %d are read as transformers reads them, %d are refused", len(all), equal, refused)
}

// Claim: a model with latent attention is written as a family whose class in transformers has its router, whatever
// config.json says; and a class that computes the mask of a window has a size for it.
func TestFamilyIsWhatItsClassComputes(t *testing.T) {
	t.Parallel()
	all := kinds(t)
	for name, want := range map[string]string{"deepseek_v2": DeepSeekV2, "deepseek_v3": DeepSeekV3, "glm4_moe_lite": DeepSeekV3} {
		c, err := readConfig(t, all[name].Config)
		if err != nil {
			t.Fatal(err)
		}
		if family, err := FamilyOf(c.Model); err != nil || family != want {
			t.Errorf("%s is written as %s, %v; want %s", name, family, err, want)
		}
		softmax := *c.Model.Experts
		softmax.ScoreFunction, c.Model.Experts = spec.ScoreSoftmax, &softmax
		if want != DeepSeekV2 && writable(want, c.Model) {
			t.Errorf("%s with a softmax router is writable as %s", name, want)
		}
	}
	for _, name := range []string{"gemma2", "gemma3_text", "olmo3", "gpt_oss"} {
		k := all[name].Config
		layers := make([]any, len(k["layer_types"].([]any)))
		for i := range layers {
			layers[i] = "full_attention"
		}
		k["layer_types"] = layers
		c, err := readConfig(t, k)
		if err != nil {
			t.Fatal(err)
		}
		if size := configOf(c.Model, ExportOptions{Family: c.Family, DType: "F32"})["sliding_window"]; size == nil {
			t.Errorf("%s without a layer with a window: sliding_window is null, which its class refuses", name)
		}
	}
}

// Claim: transformers ignores norm_topk_prob of deepseek_v2, and a note says so.
func TestNoteOfIgnoredNormalization(t *testing.T) {
	t.Parallel()
	config := kinds(t)["deepseek_v2"].Config
	for _, on := range []bool{false, true} {
		config["norm_topk_prob"], config["topk_method"], config["routed_scaling_factor"] = on, "greedy", 1.0
		c, err := readConfig(t, config)
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(latentNotes(c.Model), "\n"); strings.Contains(notes, "norm_topk_prob") != on {
			t.Errorf("norm_topk_prob %v: notes %q", on, notes)
		}
	}
}
