package peft

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint/hf"
)

// Claim: an adapter on other parts than linear layers whose settings and tensors disagree, or say what cannot be, is one
// error that names the setting or the tensor.
func TestWrongAdaptersOfOtherParts(t *testing.T) {
	const tables, saved, experts = "llama-tables", "llama-saved", "qwen3-moe-experts"
	bases := map[string]string{tables: "llama", saved: "llama", experts: "qwen3-moe"}
	for _, c := range []struct {
		adapter, key string
		value        any
		says         string // "": it is opened
	}{
		{tables, "r", 3, ""}, {saved, "r", 2, ""}, {experts, "r", 2, ""},
		{tables, "rank_pattern", map[string]int{}, "lm_head.lora_A.weight has the shape [2 32], but adapter_config.json and the model require the shape [3 32]"},
		{tables, "target_modules", []string{"lm_head", "v_proj"}, "belongs to no module that adapter_config.json adapts or saves"},
		{tables, "target_modules", []string{"wte"}, `target module "wte" matches no module`},
		{tables, "use_dora", true, "DoRA on embeddings and output layers"},
		{saved, "modules_to_save", []string{"lm_head", "model.norm", "self_attn.o_proj", "up_proj"}, "name all of them or none"},
		{saved, "modules_to_save", []string{"lm_head", "model.norm", "o_proj", "input_layernorm"}, "input_layernorm.weight is missing"},
		{saved, "modules_to_save", []string{"lm_head", "model.norm"}, "belongs to no module"},
		{saved, "modules_to_save", "lm_head", "must be lists of names"},
		{saved, "modules_to_save", []string{""}, "matches no module: no module name in the model ends with it"},
		{saved, "bias", "some", "bias is \"some\""},
		{experts, "rank_pattern", map[string]int{"experts.down_proj": 0}, "rank of model.layers.0.mlp.experts.down_proj is 0"},
		{experts, "target_parameters", []string{"mlp.experts.down_proj"}, "belongs to no module"},
		{experts, "target_parameters", []string{"mlp.gate.weight"}, `target parameter "mlp.gate.weight" matches no experts`},
		{experts, "lora_dropout", 0.1, "neither DoRA nor dropout"},
		{experts, "trainable_token_indices", []int{1}, "trainable_token_indices is [1]"},
		{saved, "layer_replication", json.RawMessage("[\n  [0, 2]\n]"), "layer_replication is [[0,2]]"},
		{saved, "lora_alpha", 1e39, "lora_alpha is 1e+39, which is too large for f32"},
	} {
		config, err := hf.ReadConfig(filepath.Join(golden.Dir(t, "model"), bases[c.adapter], "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		from := filepath.Join("../../../tools/verify/modelcase/testdata/adapters", c.adapter)
		text, err1 := os.ReadFile(filepath.Join(from, ConfigFile))
		weights, err2 := os.ReadFile(filepath.Join(from, WeightsFile))
		settings := map[string]any{}
		if err := errors.Join(err1, err2, json.Unmarshal(text, &settings)); err != nil {
			t.Fatal(err)
		}
		settings[c.key] = c.value
		if text, err = json.MarshalIndent(settings, "", " "); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, ConfigFile), text, 0o644), os.WriteFile(filepath.Join(dir, WeightsFile), weights, 0o644)); err != nil {
			t.Fatal(err)
		}
		f, err := Open(dir, config.Model, config.Family)
		if err == nil {
			f.Close()
		}
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || exitcode.CodeOf(err) != exitcode.BadData) {
			t.Errorf("%s, %s %v: code %d, %v; want %q", c.adapter, c.key, c.value, exitcode.CodeOf(err), err, c.says)
		}
	}
}
