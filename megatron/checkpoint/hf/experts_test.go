package hf

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

const mixtureBase = `"vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"num_experts_per_tok":2,"moe_intermediate_size":8`

func parseMixture(family, more string) (*Config, error) {
	return ParseConfig("config.json", []byte(fmt.Sprintf(`{"model_type":%q,%s%s}`, family, mixtureBase, more)))
}

// Claim: what the classes of transformers 5.23, and DeepSeek's own code where attention is
// Llama's, do with a key, the model does; also with keys that are not there.
func TestMixtureConfigs(t *testing.T) {
	for _, c := range []struct {
		family, more string
		ok           func(m *spec.Model, e *spec.Experts) bool
	}{
		{Qwen3MoE, ``, func(m *spec.Model, e *spec.Experts) bool {
			return e.Num == 128 && e.PreSoftmax && m.QKNorm && !m.QKVBias && m.KVChannels == 8 && !slices.Contains(e.Layers, false)
		}},
		{Qwen3MoE, `,"num_experts":6,"norm_topk_prob":true,"mlp_only_layers":[0],"decoder_sparse_step":2`, func(_ *spec.Model, e *spec.Experts) bool {
			return e.Num == 6 && !e.PreSoftmax && slices.Equal(e.Layers, []bool{false, true, false, true})
		}},
		{Qwen3MoE, `,"num_local_experts":6,"mlp_only_layers":[1,3],"use_sliding_window":true,"sliding_window":5,"max_window_layers":9`, func(m *spec.Model, e *spec.Experts) bool {
			return e.Num == 6 && slices.Equal(e.Layers, []bool{true, false, true, false}) && m.WindowLeft == 4 && m.Windowed == nil
		}},
		{Qwen2MoE, ``, func(m *spec.Model, e *spec.Experts) bool {
			return e.Num == 60 && m.QKVBias && e.SharedFFN == 5632 && e.SharedGate && m.WindowLeft == -1
		}},
		{Qwen2MoE, `,"qkv_bias":false,"shared_expert_intermediate_size":12,"use_sliding_window":true,"sliding_window":5,"max_window_layers":2`, func(m *spec.Model, e *spec.Experts) bool {
			return !m.QKVBias && e.SharedFFN == 12 && slices.Equal(m.Windowed, []bool{true, false, false, false})
		}},
		{OLMoE, ``, func(m *spec.Model, e *spec.Experts) bool {
			return e.Num == 64 && e.FFNHiddenSize == 64 && m.QKNormFull && !m.NormAfter && m.NormEpsilon == 1e-5 && e.AuxLossCoeff[0] == 0.01
		}},
		{GLM4MoE, `,"n_routed_experts":8,"routed_scaling_factor":2.5`, func(m *spec.Model, e *spec.Experts) bool {
			return m.RotaryDims() == 4 && e.ScoreFunction == spec.ScoreSigmoid && e.ExpertBias && e.SharedFFN == 8 && !e.SharedGate && e.ScalingFactor == 2.5 && e.NumGroups == 0 &&
				slices.Equal(e.Layers, []bool{false, true, true, true}) && !m.QKNorm
		}},
		{GLM4MoE, `,"n_routed_experts":8,"n_group":4,"topk_group":1,"use_qk_norm":true`, func(m *spec.Model, e *spec.Experts) bool {
			return e.NumGroups == 4 && e.GroupTopK == 1 && m.QKNorm
		}},
		{DeepSeekV2, `,"use_mla":false,"n_routed_experts":8,"n_shared_experts":2,"routed_scaling_factor":16.0`, func(m *spec.Model, e *spec.Experts) bool {
			return e.PreSoftmax && e.SharedFFN == 16 && e.ScalingFactor == 16 && m.RotaryDims() == 8 && m.QKVRows() == 64
		}},
		{DeepSeekV2, `,"use_mla":false,"n_routed_experts":8,"topk_method":"group_limited_greedy","n_group":4,"topk_group":2`, func(_ *spec.Model, e *spec.Experts) bool {
			return e.NumGroups == 4 && e.GroupTopK == 2 && e.PreSoftmax && e.SharedFFN == 16 // two, as in the class
		}},
		{DeepSeekV3, `,"use_mla":false,"n_routed_experts":8,"n_group":4,"topk_group":1,"first_k_dense_replace":1,"moe_layer_freq":2`, func(_ *spec.Model, e *spec.Experts) bool {
			return e.NumGroups == 4 && e.ExpertBias && slices.Equal(e.Layers, []bool{false, false, true, false})
		}},
	} {
		config, err := parseMixture(c.family, c.more)
		if err != nil || !c.ok(config.Model, config.Model.Experts) {
			t.Errorf("%s %s: %v", c.family, c.more, err)
			continue
		}
		if _, err := NewMapping(config.Model, c.family); err != nil {
			t.Errorf("%s %s: %v", c.family, c.more, err)
		}
	}
}

// Claim: what a mixture's config says and this program does not do is refused with its key.
func TestMixtureRefusals(t *testing.T) {
	for _, c := range []struct{ family, more, says string }{
		{Qwen3MoE, `,"num_experts":4,"num_local_experts":5`, "different values: 4 and 5"},
		{Qwen3MoE, `,"num_experts":1`, "num_experts_per_tok"},
		{Qwen3MoE, `,"mlp_only_layers":[0,1,2,3]`, "no layer has any; set model_type"},
		{Qwen3MoE, `,"mlp_only_layers":[1,99]`, "mlp_only_layers names layer 99; the 4 layers are 0 to 3"},
		{Qwen2MoE, `,"mlp_only_layers":[-1]`, "mlp_only_layers names layer -1"},
		{GLM4MoE, `,"first_k_dense_replace":-1`, "first_k_dense_replace is -1"},
		{DeepSeekV3, `,"use_mla":false,"attention_bias":true`, "attention_bias"},
		{Qwen2MoE, `,"moe_intermediate_size":null`, "moe_intermediate_size is missing"},
		{Qwen2MoE, `,"shared_expert_intermediate_size":0`, "shared_expert_intermediate_size"},
		{OLMoE, `,"clip_qkv":8.0`, "clip_qkv 8"},
		{OLMoE, `,"sliding_window":8`, "sliding_window 8"},
		{OLMoE, `,"head_dim":6`, "head_dim 6"},
		{GLM4MoE, `,"num_nextn_predict_layers":-1`, "num_nextn_predict_layers"},
		{GLM4MoE, `,"n_shared_experts":0`, "n_shared_experts"},
		{GLM4MoE, `,"norm_topk_prob":false`, "norm_topk_prob false"},
		{GLM4MoE, `,"n_group":3,"topk_group":1`, "n_group 3"},
		{GLM4MoE, `,"partial_rotary_factor":0.1`, "partial_rotary_factor"},
		{GLM4MoE, `,"topk_method":null`, "topk_method"},
		{DeepSeekV2, ``, "kv_lora_rank is missing"},
		{DeepSeekV3, `,"kv_lora_rank":512`, "v_head_dim is missing"},
		{DeepSeekV2, `,"use_mla":false,"n_routed_experts":8,"norm_topk_prob":true,"routed_scaling_factor":2.0`, "routed_scaling_factor 2"},
		{DeepSeekV3, `,"use_mla":false,"n_routed_experts":8,"n_group":8,"topk_group":8`, "leaves 1 experts in each group"},
		{DeepSeekV3, `,"use_mla":false,"n_routed_experts":8,"scoring_func":"softmax"`, `scoring_func "softmax"`},
		{"llama4_text", ``, "layers with experts are not supported"},
		{Llama, `,"num_experts":4`, "experts"},
	} {
		_, err := parseMixture(c.family, c.more)
		if err == nil || !strings.Contains(err.Error(), c.says) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s %s: %v, want it to say %q", c.family, c.more, err, c.says)
		}
	}
}

// Claim: a mixture that no family holds is refused with what lacks, and DeepSeek's shapes,
// which transformers' classes do not build without latent attention, are not written.
func TestMixturesNoFamilyHolds(t *testing.T) {
	for says, change := range map[string]func(m *spec.Model){
		"--moe-router-pre-softmax":                       func(m *spec.Model) { m.Experts.PreSoftmax = true },
		"--moe-layer-freq [true true] ->":                func(m *spec.Model) { m.Experts.Layers[0] = false },
		"--moe-shared-expert-intermediate-size 0 -> 9":   func(m *spec.Model) { m.QKNorm, m.Experts.SharedFFN = true, 9 },
		"--moe-router-group-best 2 -> 1":                 func(m *spec.Model) { withExperts(m, GLM4MoE); m.Experts.GroupTopK = 2 },
		"--moe-router-score-function sigmoid -> softmax": func(m *spec.Model) { withExperts(m, GLM4MoE); m.Experts.ScoreFunction = spec.ScoreSoftmax },
		"--norm-after":                                   func(m *spec.Model) { m.NormAfter = true },
		"--moe-router-num-groups":                        func(m *spec.Model) { m.Experts.NumGroups = 2 },
		"--moe-apply-probs-on-input":                     func(m *spec.Model) { m.Experts.ProbsOnInput = true },
		"bias of linear layers":                          func(m *spec.Model) { m.LinearBias = true },
		"[true true] -> [true false]":                    func(m *spec.Model) { withExperts(m, GLM4MoE); m.Experts.Layers = []bool{true, false} },
		"--moe-shared-expert-intermediate-size 10 -> 15": func(m *spec.Model) { withExperts(m, GLM4MoE); m.Experts.SharedFFN = 15 },
		"--rotary-percent":                               func(m *spec.Model) { m.RotaryPercent = 0.4 },
	} {
		m := shape(Mixtral)
		change(m)
		if _, err := FamilyOf(m); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	m := shape(Mixtral)
	m.WindowLeft, m.Experts.PreSoftmax = -1, true
	err := Export(filepath.Join(t.TempDir(), "x"), m, nil, ExportOptions{Family: DeepSeekV2})
	if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "can be read, but not written") {
		t.Error(err)
	}
}

// Claim: what writer and reader of a mixture share as an error does not pass the rules of
// transformers' classes.
func TestPeerSeesErrorsOfMixtures(t *testing.T) {
	for _, c := range []struct {
		family string
		spoil  func(config map[string]any, e *spec.Experts)
	}{
		{Qwen3MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "norm_topk_prob") }},
		{Qwen3MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "mlp_only_layers") }},
		{Qwen3MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "moe_intermediate_size") }},
		{Qwen3MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "use_sliding_window") }},
		{Qwen3MoE, func(_ map[string]any, e *spec.Experts) { e.TopK = 3 }},
		{Qwen2MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "layer_types") }},
		{Qwen2MoE, func(c map[string]any, _ *spec.Experts) { c["qkv_bias"] = false }},
		{Qwen2MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "shared_expert_intermediate_size") }},
		{OLMoE, func(c map[string]any, _ *spec.Experts) { c["norm_topk_prob"] = true }},
		{OLMoE, func(c map[string]any, _ *spec.Experts) { delete(c, "num_experts") }},
		{Mixtral, func(_ map[string]any, e *spec.Experts) { e.PreSoftmax = true }},
		{GLM4MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "routed_scaling_factor") }},
		{GLM4MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "n_group") }},
		{GLM4MoE, func(c map[string]any, _ *spec.Experts) { c["first_k_dense_replace"] = 0.0 }},
		{GLM4MoE, func(c map[string]any, _ *spec.Experts) { delete(c, "use_qk_norm") }},
		{GLM4MoE, func(c map[string]any, _ *spec.Experts) {
			delete(c, "partial_rotary_factor")
			delete(c["rope_parameters"].(map[string]any), "partial_rotary_factor")
		}},
	} {
		m := shape(c.family)
		dir := filepath.Join(t.TempDir(), "out")
		if err := Export(dir, m, zerosOf(t, m, c.family), ExportOptions{}); err != nil {
			t.Fatal(c.family, err)
		}
		if _, err := CheckPeer(dir, m); err != nil {
			t.Fatal(c.family, err)
		}
		config, err := readObject(filepath.Join(dir, ConfigName))
		if err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(config, *m.Experts)
		c.spoil(config, m.Experts)
		after := fmt.Sprint(config, *m.Experts)
		if err := writeOver(filepath.Join(dir, ConfigName), config); err != nil {
			t.Fatal(err)
		}
		if _, err := CheckPeer(dir, m); exitcode.CodeOf(err) != exitcode.Differs || before == after {
			t.Errorf("%s, from %s to %s: %v", c.family, before, after, err)
		}
	}
}

// Claim: layers that predict further tokens are left out and reported, as transformers leaves
// them out; without an entry for them in config.json they are refused.
func TestFurtherLayersAreLeftOut(t *testing.T) {
	m := shape(GLM4MoE)
	m.NumLayers, m.Experts.Layers = 3, []bool{false, true, true}
	dir := filepath.Join(t.TempDir(), "out")
	if err := Export(dir, m, zerosOf(t, m, GLM4MoE), ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := readObject(filepath.Join(dir, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	for further, ok := range map[float64]bool{0: false, 1: true} {
		config["num_hidden_layers"], config["num_nextn_predict_layers"] = 2.0, further
		if err := writeOver(filepath.Join(dir, ConfigName), config); err != nil {
			t.Fatal(err)
		}
		src, err := OpenSource(dir, checkpoint.OpenOptions{})
		if !ok {
			if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "is not part of the model that") {
				t.Errorf("without the key: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if notes := src.Info().Notes; len(notes) != 1 || !strings.Contains(notes[0], "layers of multi-token prediction") {
			t.Errorf("%q", notes)
		}
		_ = src.Close()
	}
}

// firstSources are the names in a file by ours: of a tensor made from several, the first.
func firstSources(m *Mapping) map[string]string {
	theirs := map[string]string{}
	for _, r := range m.rules {
		theirs[r.global] = r.sources[0].Name
	}
	return theirs
}

// Claim: where a run asks for them, the layers behind the model's are read as those of multi-token
// prediction, under Megatron's names, and copies of embedding and output layer in them are not.
func TestFurtherLayersAreRead(t *testing.T) {
	m := shape(GLM4MoE)
	m.NumLayers, m.Experts.Layers, m.MTP = 2, []bool{false, true}, &spec.MTP{Depths: 1, LossScale: 0.1}
	mp, err := NewMapping(m, GLM4MoE)
	if err != nil {
		t.Fatal(err)
	}
	theirs := firstSources(mp)
	for ours, want := range map[string]string{
		"mtp.layers.0.eh_proj.weight":                                    "model.layers.2.eh_proj.weight",
		"mtp.layers.0.final_layernorm.weight":                            "model.layers.2.shared_head.norm.weight",
		"mtp.layers.0.mtp_model_layer.self_attention.linear_qkv.weight":  "model.layers.2.self_attn.q_proj.weight",
		"mtp.layers.0.mtp_model_layer.mlp.router.expert_bias":            "model.layers.2.mlp.gate.e_score_correction_bias",
		"decoder.layers.1.mlp.experts.local_experts.0.linear_fc2.weight": "model.layers.1.mlp.experts.0.down_proj.weight",
	} {
		if theirs[ours] != want {
			t.Errorf("%s is %q, want %q", ours, theirs[ours], want)
		}
	}
	if want := checkpoint.Expected(m); len(mp.rules) != len(want) {
		t.Errorf("%d rules for %d tensors", len(mp.rules), len(want))
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := Export(dir, m, zerosOf(t, m, GLM4MoE), ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []bool{false, true} {
		src, err := OpenSource(dir, checkpoint.OpenOptions{MTP: asked})
		if err != nil {
			t.Fatal(err)
		}
		want := len(mp.rules)
		if !asked {
			decoder := *m
			decoder.MTP = nil
			want = len(checkpoint.Expected(&decoder))
		}
		if got := src.Info().Model.MTP; len(src.Tensors()) != want || (got != nil) != asked || asked && *got != *m.MTP {
			t.Errorf("asked %v: %d tensors of %d, %+v", asked, len(src.Tensors()), want, got)
		}
		_ = src.Close()
	}
	m.MTP.Repeated = true
	if _, err := NewMapping(m, GLM4MoE); err == nil || !strings.Contains(err.Error(), "--mtp-use-repeated-layer") {
		t.Errorf("a repeated layer: %v", err)
	}
	if _, err := NewMapping(&spec.Model{MTP: &spec.MTP{Depths: 1}}, Llama); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("llama: %v", err)
	}
}

// Claim: the same of the layer that Qwen3-Next, Qwen3.5 and its mixture have under names of their own, of a folder whose config.json does
// not tell of it too; there is one.
func TestOwnFurtherLayerIsRead(t *testing.T) {
	for _, name := range []string{"qwen3-5", "qwen3-5-moe"} {
		config, err := ReadConfig(filepath.Join(ownCases, name, ConfigName))
		if err != nil {
			t.Fatal(err)
		}
		m, family := config.Model, config.Family
		m.Delta.Layers[m.NumLayers-1] = false // the further layer has attention, as the last one
		m.MTP, m.Context = &spec.MTP{Depths: 1, LossScale: 0.1}, 64
		mp, err := NewMapping(m, family)
		if err != nil {
			t.Fatal(err)
		}
		theirs := firstSources(mp)
		for ours, want := range map[string]string{
			"mtp.layers.0.eh_proj.weight": "mtp.fc.weight", "mtp.layers.0.enorm.weight": "mtp.pre_fc_norm_embedding.weight", "mtp.layers.0.hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
			"mtp.layers.0.final_layernorm.weight": "mtp.norm.weight", "mtp.layers.0.mtp_model_layer.self_attention.linear_qkv.weight": "mtp.layers.0.self_attn.q_proj.weight",
			"mtp.layers.0.mtp_model_layer.pre_mlp_layernorm.weight": "mtp.layers.0.post_attention_layernorm.weight",
		} {
			if theirs[ours] != want {
				t.Errorf("%s: %s is %q, want %q", name, ours, theirs[ours], want)
			}
		}
		dir := filepath.Join(t.TempDir(), "out")
		if err := Export(dir, m, zerosOf(t, m, family), ExportOptions{Family: family}); err != nil {
			t.Fatal(err)
		}
		for _, reported := range []bool{true, false} {
			path := filepath.Join(dir, ConfigName)
			if text, err := os.ReadFile(path); err != nil || !reported && os.WriteFile(path, regexp.MustCompile(`\s*"mtp_num_hidden_layers": 1,`).ReplaceAll(text, nil), 0o600) != nil {
				t.Fatal(err)
			}
			for _, asked := range []bool{false, true} {
				src, err := OpenSource(dir, checkpoint.OpenOptions{MTP: asked})
				if err != nil {
					t.Fatal(err)
				}
				decoder := *m
				if !asked {
					decoder.MTP = nil
				}
				if want, got := len(checkpoint.Expected(&decoder)), src.Info().Model.MTP; len(src.Tensors()) != want || (got != nil) != asked || asked && *got != *m.MTP {
					t.Errorf("%s, told %v, asked %v: %d tensors of %d, %+v", name, reported, asked, len(src.Tensors()), want, got)
				}
				if left := strings.Contains(strings.Join(src.Info().Notes, " "), "tensors of layers of multi-token prediction"); left == asked {
					t.Errorf("notes %q", src.Info().Notes)
				}
				_ = src.Close()
			}
		}
		m.MTP.Depths = 2
		if _, err := NewMapping(m, family); err == nil || !strings.Contains(err.Error(), "--mtp-num-layers 1 -> 2") {
			t.Errorf("%s: two depths: %v", name, err)
		}
	}
}

// zerosOf gives every tensor of m as zeros.
func zerosOf(t *testing.T, m *spec.Model, family string) func(global string) ([]float32, error) {
	t.Helper()
	copied := *m
	mp, err := NewMapping(&copied, family)
	if err != nil {
		t.Fatal(err)
	}
	return func(global string) ([]float32, error) {
		n := int64(1)
		for _, d := range mp.GlobalShape(global) {
			n *= d
		}
		return make([]float32, n), nil
	}
}
