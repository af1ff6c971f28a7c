package gguf

import (
	"maps"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/tokenizer/ggvocab"
)

// family is what llama.cpp makes of a family of Hugging Face's.
type family struct {
	hf   string // model_type
	arch string // general.architecture

	names   map[string]string                                         // of modules, where commonNames are others
	permute bool                                                      // rows of q and k lie as rotations of neighbouring pairs
	fused   bool                                                      // QKV of each head lie together in Hugging Face's files
	linear  bool                                                      // the weights are [out, in], unlike Hugging Face's
	order   func(m *spec.Model, name string, rows int64) order        // of rows and columns of a tensor; nil: as they are
	split   func(m *spec.Model, src hf.Source) (list []part, ok bool) // a source that several tensors are made of; nil: none
	shape   func(m *spec.Model, name string, rows int64) []int64      // of a tensor, where it is another than the source's; nil: as it is
	plusOne bool                                                      // norm weights are stored as weight+1
	mixed   bool                                                      // layers without experts may be among those with them

	custom     bool              // metadata is what keys say, without the common set
	keys       map[string]string // metadata key, without architecture, to config.json's, where they differ from commonKeys; "": describe adds it, if anything
	fixed      map[string]any    // settings of config.json that the architecture implies
	pre        string            // name of the way texts are cut, where several fit
	narrow     bool              // a head is the hidden size divided by the heads: its width is not written
	sizes      bool              // vocab_size and rope.dimension_count are written
	spaces     *bool             // add_space_prefix of the tokenizer
	activation string            // of the MLP, where it is not Swiglu or one of those of older rows
	words      string            // kind of a tokenizer that is a BPE over characters; "": llama

	noFileType bool // llama.cpp's converter leaves general.file_type out

	// Only for some rows.
	describe func(d *describing)      // metadata
	settle   func(s *settling)        // and back
	check    func(d *describing)      // what llama.cpp computes otherwise
	is       func(s *settling) bool   // distinguishes a file from those of further rows of its architecture; nil: any
	of       func(m *spec.Model) bool // distinguishes models of a family with several architectures; nil: any
	yarn     bool                     // llama.cpp reads the ramp's ends (beta_fast, beta_slow)
	exact    bool                     // settings that the file cannot hold are refused, not noted
}

var no = false

// families are tried in this order for a file's architecture; is distinguishes those of one
// architecture.
var families = append(scanFamilies(), []family{
	{hf: hf.Llama, arch: "llama", permute: true, sizes: true},
	{hf: hf.Mistral, arch: "llama", permute: true, sizes: true},
	{hf: hf.Mixtral, arch: "llama", permute: true, sizes: true, keys: map[string]string{"expert_count": "num_local_experts"}},
	{hf: hf.SmolLM3, arch: "smollm3", permute: true, sizes: true, fixed: map[string]any{"no_rope_layer_interval": 4.0}},
	{hf: hf.Qwen2, arch: "qwen2"},
	{hf: hf.Qwen3, arch: "qwen3"},
	{hf: hf.Qwen2MoE, arch: "qwen2moe", fixed: map[string]any{"norm_topk_prob": false}},
	{hf: hf.Qwen3MoE, arch: "qwen3moe", fixed: map[string]any{"norm_topk_prob": true}},
	{hf: hf.OLMoE, arch: "olmoe", fixed: map[string]any{"norm_topk_prob": false}},
	{hf: hf.Olmo3, arch: "olmo2", exact: true, names: map[string]string{"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm"}, is: (*settling).windowed,
		keys: map[string]string{"attention.sliding_window": "sliding_window"}, describe: (*describing).olmo3, settle: (*settling).olmo3, check: (*describing).checkOlmo3},
	{hf: hf.Olmo2, arch: "olmo2", names: map[string]string{"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm"}},
	{hf: hf.GPTOSS, arch: "gpt-oss", exact: true, activation: spec.QuickGeglu, pre: "gpt-4o", names: gptOSSNames, split: splitExperts, settle: (*settling).gptOSS, check: (*describing).checkGPTOSS,
		keys: map[string]string{"expert_count": "num_local_experts", "expert_feed_forward_length": "intermediate_size", "attention.sliding_window": "sliding_window"}},
	deltaFamily(hf.Qwen35, "qwen35"), deltaFamily(hf.Qwen35MoE, "qwen35moe"), deltaFamily(hf.Qwen3Next, "qwen3next"),
	{hf: hf.LFM2, arch: "lfm2", exact: true, pre: "lfm2", sizes: true, names: lfm2Names, describe: (*describing).lfm2, settle: (*settling).lfm2,
		keys: map[string]string{"attention.head_count_kv": "", "feed_forward_length": "", "attention.layer_norm_rms_epsilon": "norm_eps", "shortconv.l_cache": "conv_L_cache"}},
	latentFamily(hf.DeepSeekV2, (*settling).softmaxRouter), latentFamily(hf.DeepSeekV3, nil), latentFamily(hf.KimiK2, nil), latentFamily(hf.GLM4MoELite, nil),
	{hf: hf.Ministral3, arch: "mistral3", exact: true, permute: true, sizes: true, yarn: true,
		describe: (*describing).ministral3, settle: (*settling).ministral3, check: (*describing).checkMinistral3},
	{hf: hf.Gemma4, arch: "gemma4", exact: true, activation: spec.Geglu, spaces: &no, words: ggvocab.Gemma4, names: gemma4Names, keys: gemma4Keys,
		describe: (*describing).gemma4, settle: (*settling).gemma4, check: (*describing).checkGemma4},
	{hf: hf.Cohere, arch: "command-r", exact: true, pre: "command-r", describe: (*describing).cohere, settle: (*settling).cohere, check: (*describing).checkCohere,
		keys: map[string]string{"attention.layer_norm_epsilon": "layer_norm_eps", "attention.layer_norm_rms_epsilon": "", "logit_scale": "logit_scale"}},
	{hf: hf.Falcon, arch: "falcon", custom: true, exact: true, names: falconNames, order: falconOrder, keys: falconKeys,
		describe: (*describing).falcon, settle: (*settling).falcon, check: (*describing).checkFalcon},
	{hf: hf.MiniMax2, arch: "minimax-m2", exact: true, pre: "minimax-m2", names: map[string]string{"model.layers.N.block_sparse_moe.e_score_correction": "blk.N.exp_probs_b"},
		keys:     map[string]string{"expert_count": "num_local_experts", "expert_feed_forward_length": "intermediate_size", "expert_shared_feed_forward_length": ""},
		describe: (*describing).sigmoidRouter},
	{hf: hf.Hunyuan, arch: "hunyuan-dense", exact: true, pre: "hunyuan-dense", check: (*describing).checkHunyuan,
		names: map[string]string{"model.layers.N.self_attn.query_layernorm": "blk.N.attn_q_norm", "model.layers.N.self_attn.key_layernorm": "blk.N.attn_k_norm"}},
	{hf: hf.Exaone4, arch: "exaone4", exact: true, sizes: true, names: map[string]string{"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm"},
		keys: map[string]string{"attention.sliding_window": "sliding_window"}, describe: (*describing).exaone4, settle: (*settling).exaone4, check: (*describing).checkExaone4},
	{hf: hf.GLM4MoE, arch: "glm4moe", mixed: true, names: map[string]string{"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm"}, pre: "glm4",
		keys: map[string]string{"expert_count": "n_routed_experts", "expert_shared_count": "n_shared_experts", "leading_dense_block_count": "first_k_dense_replace",
			"expert_weights_scale": "routed_scaling_factor", "expert_weights_norm": "norm_topk_prob", "expert_group_count": "n_group", "expert_group_used_count": "topk_group"}},
	{hf: hf.Starcoder2, arch: "starcoder2", keys: map[string]string{"attention.layer_norm_epsilon": "norm_epsilon"}, pre: "starcoder"},
	{hf: hf.Phi3, arch: "phi3", custom: true, keys: map[string]string{"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
		"block_count": "num_hidden_layers", "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
		"rope.freq_base": "rope_theta", "attention.sliding_window": "sliding_window", "rope.scaling.original_context_length": "original_max_position_embeddings"}},
	{hf: hf.GPT2, arch: "gpt2", custom: true, linear: true, keys: map[string]string{"block_count": "n_layer", "context_length": "n_positions", "embedding_length": "n_embd",
		"feed_forward_length": "n_inner", "attention.head_count": "n_head", "attention.layer_norm_epsilon": "layer_norm_epsilon"}},
	{hf: hf.GPTNeoX, arch: "gptneox", custom: true, fused: true, noFileType: true, keys: map[string]string{"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
		"feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads", "use_parallel_residual": "use_parallel_residual", "attention.layer_norm_epsilon": "layer_norm_eps"}},
	{hf: hf.Bloom, arch: "bloom", custom: true, fused: true, keys: map[string]string{"context_length": "seq_length", "embedding_length": "hidden_size", "feed_forward_length": "n_inner", "block_count": "n_layer",
		"attention.head_count": "n_head", "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_epsilon": "layer_norm_epsilon"}},
	{hf: "granite", arch: "granite", permute: true, sizes: true, narrow: true, keys: map[string]string{"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
		"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}},
	{hf: "seed_oss", arch: "seed_oss", names: map[string]string{"model.layers.N.post_attention_layernorm": "blk.N.post_attention_norm"}},
	{hf: "ernie4_5", arch: "ernie4_5"},
	{hf: "gemma", arch: "gemma", custom: true, plusOne: true, spaces: &no, keys: gemmaKeys(nil)},
	{hf: "gemma2", arch: "gemma2", custom: true, plusOne: true, spaces: &no, names: sandwich,
		keys: gemmaKeys(map[string]string{"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping", "attention.sliding_window": "sliding_window"})},
	{hf: "gemma3_text", arch: "gemma3", plusOne: true, spaces: &no, names: sandwich,
		keys: map[string]string{"final_logit_softcapping": "final_logit_softcapping", "attention.sliding_window": "sliding_window"}},
}...)

// gemmaKeys are those of Gemma 1 and 2, and more.
func gemmaKeys(more map[string]string) map[string]string {
	keys := map[string]string{"attention.key_length": "head_dim", "attention.value_length": "head_dim"}
	for _, k := range commonKeys {
		if k.key != "rope.freq_base" && !strings.HasPrefix(k.key, "expert") {
			keys[k.key] = k.setting
		}
	}
	maps.Copy(keys, more)
	return keys
}

// scales reports that llama.cpp's converter writes Llama 3's scaling.
func (f *family) scales() bool { return f.permute || f.arch == "exaone4" }

// sigmoid reports that experts are chosen by sigmoids.
func (f *family) sigmoid() bool {
	return slices.Contains([]string{hf.GLM4MoE, hf.DeepSeekV3, hf.KimiK2, hf.GLM4MoELite, hf.MiniMax2, hf.NemotronH}, f.hf)
}

// scoreDivisor is the number whose root divides Gemma's scores: a head's width, but in the
// largest model of each generation, which llama.cpp knows by its number of layers.
func (f *family) scoreDivisor(hidden, heads, head, layers int64) int64 {
	if f.arch == "gemma2" && layers == 46 || f.arch == "gemma3" && layers == 62 {
		return hidden / max(1, heads)
	}
	return head
}

// sandwich are Gemma's norms before and after attention and MLP.
var sandwich = map[string]string{
	"model.layers.N.post_attention_layernorm":   "blk.N.post_attention_norm",
	"model.layers.N.pre_feedforward_layernorm":  "blk.N.ffn_norm",
	"model.layers.N.post_feedforward_layernorm": "blk.N.post_ffw_norm",
}

// commonNames are modules of Hugging Face's by GGUF's names: N is the layer, E the expert.
var commonNames = map[string]string{
	"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",

	"model.layers.N.input_layernorm":            "blk.N.attn_norm",
	"model.layers.N.self_attn.q_proj":           "blk.N.attn_q",
	"model.layers.N.self_attn.k_proj":           "blk.N.attn_k",
	"model.layers.N.self_attn.v_proj":           "blk.N.attn_v",
	"model.layers.N.self_attn.qkv_proj":         "blk.N.attn_qkv",
	"model.layers.N.self_attn.o_proj":           "blk.N.attn_output",
	"model.layers.N.self_attn.q_norm":           "blk.N.attn_q_norm",
	"model.layers.N.self_attn.k_norm":           "blk.N.attn_k_norm",
	"model.layers.N.post_attention_layernorm":   "blk.N.ffn_norm",
	"model.layers.N.post_feedforward_layernorm": "blk.N.post_ffw_norm",
	"model.layers.N.mlp.gate_proj":              "blk.N.ffn_gate",
	"model.layers.N.mlp.up_proj":                "blk.N.ffn_up",
	"model.layers.N.mlp.down_proj":              "blk.N.ffn_down",
	"model.layers.N.mlp.gate_up_proj":           "blk.N.ffn_up",
	"model.layers.N.mlp.c_fc":                   "blk.N.ffn_up",
	"model.layers.N.mlp.c_proj":                 "blk.N.ffn_down",

	"model.layers.N.mlp.gate":                      "blk.N.ffn_gate_inp",
	"model.layers.N.mlp.gate.e_score_correction":   "blk.N.exp_probs_b",
	"model.layers.N.mlp.experts.E.gate_proj":       "blk.N.ffn_gate_exps",
	"model.layers.N.mlp.experts.E.up_proj":         "blk.N.ffn_up_exps",
	"model.layers.N.mlp.experts.E.down_proj":       "blk.N.ffn_down_exps",
	"model.layers.N.block_sparse_moe.gate":         "blk.N.ffn_gate_inp",
	"model.layers.N.block_sparse_moe.experts.E.w1": "blk.N.ffn_gate_exps",
	"model.layers.N.block_sparse_moe.experts.E.w3": "blk.N.ffn_up_exps",
	"model.layers.N.block_sparse_moe.experts.E.w2": "blk.N.ffn_down_exps",
	"model.layers.N.mlp.shared_expert_gate":        "blk.N.ffn_gate_inp_shexp",
	"model.layers.N.mlp.shared_expert.gate_proj":   "blk.N.ffn_gate_shexp",
	"model.layers.N.mlp.shared_expert.up_proj":     "blk.N.ffn_up_shexp",
	"model.layers.N.mlp.shared_expert.down_proj":   "blk.N.ffn_down_shexp",
	"model.layers.N.mlp.shared_experts.gate_proj":  "blk.N.ffn_gate_shexp",
	"model.layers.N.mlp.shared_experts.up_proj":    "blk.N.ffn_up_shexp",
	"model.layers.N.mlp.shared_experts.down_proj":  "blk.N.ffn_down_shexp",

	"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
	"transformer.h.N.ln_1": "blk.N.attn_norm", "transformer.h.N.ln_2": "blk.N.ffn_norm",
	"transformer.h.N.attn.c_attn": "blk.N.attn_qkv", "transformer.h.N.attn.c_proj": "blk.N.attn_output",
	"transformer.h.N.mlp.c_fc": "blk.N.ffn_up", "transformer.h.N.mlp.c_proj": "blk.N.ffn_down",

	"transformer.word_embeddings": "token_embd", "transformer.word_embeddings_layernorm": "token_embd_norm",
	"transformer.h.N.input_layernorm": "blk.N.attn_norm", "transformer.h.N.post_attention_layernorm": "blk.N.ffn_norm",
	"transformer.h.N.self_attention.query_key_value": "blk.N.attn_qkv", "transformer.h.N.self_attention.dense": "blk.N.attn_output",
	"transformer.h.N.mlp.dense_h_to_4h": "blk.N.ffn_up", "transformer.h.N.mlp.dense_4h_to_h": "blk.N.ffn_down",

	"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output",
	"gpt_neox.layers.N.input_layernorm": "blk.N.attn_norm", "gpt_neox.layers.N.post_attention_layernorm": "blk.N.ffn_norm",
	"gpt_neox.layers.N.attention.query_key_value": "blk.N.attn_qkv", "gpt_neox.layers.N.attention.dense": "blk.N.attn_output",
	"gpt_neox.layers.N.mlp.dense_h_to_4h": "blk.N.ffn_up", "gpt_neox.layers.N.mlp.dense_4h_to_h": "blk.N.ffn_down",
}

// commonKeys are the settings that most architectures have, by metadata key without the
// architecture, in the order in which they are written.
var commonKeys = []struct{ key, setting string }{
	{"block_count", "num_hidden_layers"}, {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"}, {"feed_forward_length", "intermediate_size"},
	{"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", "num_key_value_heads"}, {"rope.freq_base", "rope_theta"},
	{"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, {"expert_count", "num_experts"}, {"expert_used_count", "num_experts_per_tok"},
	{"expert_feed_forward_length", "moe_intermediate_size"}, {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
}

// fractions are the keys whose values are 32-bit floats; those of truths are booleans, of all
// others unsigned integers.
var (
	fractions = []string{"rope.freq_base", "rope.freq_base_swa", "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "expert_weights_scale",
		"attn_logit_softcapping", "final_logit_softcapping", "rope.scaling.factor", "attention.scale", "embedding_scale", "residual_scale", "logit_scale"}
	truths = []string{"use_parallel_residual", "expert_weights_norm"}
)

// settings lists the keys of f with config.json's names.
func (f *family) settings() (list []struct{ key, setting string }) {
	seen := map[string]bool{}
	if !f.custom {
		for _, k := range commonKeys {
			if other, ok := f.keys[k.key]; ok {
				k.setting = other
			}
			if seen[k.key] = true; k.setting != "" {
				list = append(list, k)
			}
		}
	}
	var more []struct{ key, setting string }
	for key, setting := range f.keys {
		if !seen[key] && setting != "" {
			more = append(more, struct{ key, setting string }{key, setting})
		}
	}
	slices.SortFunc(more, func(a, b struct{ key, setting string }) int { return strings.Compare(a.key, b.key) })
	return append(list, more...)
}

// module is GGUF's name of a module of Hugging Face's.
func (f *family) module(name string) (string, bool) {
	if own, ok := f.names[name]; ok {
		return own, true
	}
	own, ok := commonNames[name]
	return own, ok
}

// familyOf is the row of a model of a family of Hugging Face's.
func familyOf(name string, m *spec.Model) (*family, error) {
	for i := range families {
		if families[i].hf == name && (families[i].of == nil || families[i].of(m)) {
			return &families[i], nil
		}
	}
	return nil, exitcode.Errorf(exitcode.Usage, "%s models cannot be stored in GGUF; the models that can be stored are %s", name, known())
}

// known names the families of the table.
func known() string {
	var list []string
	for i := range families {
		if !slices.Contains(list, families[i].hf) {
			list = append(list, families[i].hf)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// architectures names the architectures of the table.
func architectures() string {
	var list []string
	for i := range families {
		if !slices.Contains(list, families[i].arch) {
			list = append(list, families[i].arch)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
