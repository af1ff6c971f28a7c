package hf

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/megatron/spec"
)

// row is all that a family is: how its config.json is read and written, and its tensors'
// names. No list says whether a family can hold a model: its config.json is written
// and read again, and what comes back must be the model.
type row struct {
	architecture string                                               // transformers' class
	latent       bool                                                 // its class always has latent attention
	lenient      bool                                                 // keys that nobody here reads are passed over; else they are refused
	predicts     bool                                                 // files may have layers of multi-token prediction behind the model's
	ownAhead     bool                                                 // these are one layer, under names of their own: mtp
	leavesAhead  bool                                                 // they are under such names, and are never read
	mixture      *mixtureNames                                        // its layers may be mixtures of experts
	absent       func(f *fields)                                      // what its class has where a key is absent; nil: as Llama
	read         func(c *reading, f *fields)                          // config.json to model
	config       func(c map[string]any, m *spec.Model, positions int) // and back
	names        func(mp *Mapping)                                    // tensors; nil: Llama's names
	prefix       [2]string                                            // of names in files, and that of modules in transformers' class instead
	about        string                                               // its parts, for docs/models.md
	refused      string                                               // what of it is refused, for docs/models.md
}

// order is that in which families are tried for a model: of two that can hold it the one with fewer parts
// comes first.
var order = []string{GPT2, GPTNeo, Bloom, GPTNeoX, Llama, Mistral, Qwen2, Qwen3, Phi3, SmolLM3, Olmo2, Starcoder2,
	Mixtral, Qwen2MoE, Qwen3MoE, OLMoE, GLM4MoE, Qwen3Next, DeepSeekV3, DeepSeekV2, Cohere, Ernie45, Exaone4, Falcon, Gemma2, Gemma3, Gemma4, GLM4MoELite, GPTOSS, Granite, GraniteHybrid, Hunyuan,
	KimiK2, LFM2, Llama4, Mamba2, MiniMax2, Ministral3, NemotronH, Olmo3, OPT, Qwen35, Qwen35MoE, SeedOSS}

// noState is what does not know linear attention and short convolutions.
const noState = "Muon and Megatron's formats, which do not support linear attention and short convolutions"

// noScans is the same of state-space scans.
const noScans = "Muon and Megatron's formats, which do not support state-space scans"

// latentRefused is what families with latent attention refuse; sigmoidRefused is that of those with sigmoid routers.
const (
	latentRefused  = "mscale_all_dim without mscale; attention_bias; models without layers with experts"
	sigmoidRefused = "norm_topk_prob false; " + latentRefused
)

// rows are the families, by config.json's model_type.
var rows = map[string]*row{
	GPT2: {architecture: "GPT2LMHeadModel", lenient: true, read: (*reading).gpt2, config: gpt2Config, names: (*Mapping).conv1D,
		about: "learned positional embeddings"},
	GPTNeo: {architecture: "GPTNeoForCausalLM", lenient: true, absent: gptNeoAbsent, read: (*reading).gptNeo, config: gptNeoConfig, names: (*Mapping).gptNeo,
		about: "learned positional embeddings, sliding window in every other layer, unscaled attention scores"},
	GPTNeoX: {architecture: "GPTNeoXForCausalLM", lenient: true, absent: gptNeoXAbsent, read: (*reading).gptNeoX, config: gptNeoXConfig, names: (*Mapping).gptNeoX,
		about: "parallel attention and MLP, partial RoPE"},
	Bloom: {architecture: "BloomForCausalLM", lenient: true, read: (*reading).bloom, config: bloomConfig, names: (*Mapping).bloom,
		about: "ALiBi, embedding LayerNorm", refused: "untied embeddings"},
	Starcoder2: {architecture: "Starcoder2ForCausalLM", lenient: true, absent: starcoder2Absent, read: (*reading).starcoder2, config: llamaConfig,
		about: "LayerNorm, biases, ungated MLP", refused: "training from a folder without biases whose GELU has the tanh form"},
	Llama: {architecture: "LlamaForCausalLM", lenient: true, read: (*reading).llama, config: llamaConfig,
		about: "RMSNorm, RoPE, SwiGLU, GQA"},
	Mistral: {architecture: "MistralForCausalLM", lenient: true, absent: mistralAbsent, read: (*reading).llama, config: llamaConfig,
		about: "sliding window"},
	Qwen2: {architecture: "Qwen2ForCausalLM", lenient: true, absent: qwen2Absent, read: (*reading).llama, config: llamaConfig,
		about: "QKV biases, sliding window by layer"},
	Qwen3: {architecture: "Qwen3ForCausalLM", lenient: true, absent: qwen3Absent, read: (*reading).llama, config: llamaConfig,
		about: "QK-norm per head"},
	Olmo2: {architecture: "Olmo2ForCausalLM", lenient: true, absent: olmo2Absent, read: (*reading).llama, config: llamaConfig,
		about: "post-norm, QK-norm over all heads"},
	Phi3: {architecture: "Phi3ForCausalLM", lenient: true, absent: phi3Absent, read: (*reading).llama, config: llamaConfig,
		about: "fused QKV and gate-up weights, partial RoPE, LongRoPE"},
	SmolLM3: {architecture: "SmolLM3ForCausalLM", lenient: true, absent: smolLM3Absent, read: (*reading).llama, config: llamaConfig,
		about: "layers without RoPE (NoPE)"},
	Mixtral: {architecture: "MixtralForCausalLM", lenient: true, mixture: numbered(8), absent: mixtralAbsent, read: (*reading).llama, config: llamaConfig,
		about: "MoE"},
	Qwen2MoE: {architecture: "Qwen2MoeForCausalLM", lenient: true, mixture: gated(60, "shared_expert."), absent: qwen2MoEAbsent, read: (*reading).llama, config: llamaConfig,
		about: "MoE, gated shared expert"},
	Qwen3MoE: {architecture: "Qwen3MoeForCausalLM", lenient: true, mixture: gated(128, ""), absent: qwen3MoEAbsent, read: (*reading).llama, config: llamaConfig,
		about: "MoE, QK-norm per head"},
	OLMoE: {architecture: "OlmoeForCausalLM", lenient: true, mixture: gated(64, ""), absent: olmoeAbsent, read: (*reading).llama, config: llamaConfig,
		about: "MoE, QK-norm over all heads"},
	GLM4MoE: {architecture: "Glm4MoeForCausalLM", lenient: true, predicts: true, mixture: gated(128, "shared_experts."), absent: glm4MoEAbsent, read: (*reading).llama, config: llamaConfig,
		about: "MoE with a sigmoid router and router bias, shared experts, partial RoPE", refused: "norm_topk_prob false; models without layers with experts"},
	Granite: {architecture: "GraniteForCausalLM", absent: graniteAbsent, read: (*reading).granite, config: graniteConfig,
		about: "multipliers of embeddings, residual branches, attention scores and logits"},
	GraniteHybrid: {architecture: "GraniteMoeHybridForCausalLM", mixture: &mixtureNames{experts: 8, mixture: "block_sparse_moe."}, absent: graniteHybridAbsent, read: (*reading).graniteHybrid, config: graniteHybridConfig, names: (*Mapping).graniteHybrid,
		about: "state-space scans (Mamba-2) in most layers; MoE and a shared expert in all layers or in none; multipliers of embeddings, residual branches, attention scores and logits; RoPE or NoPE; this is Granite 4", refused: "mamba_proj_bias; " + noScans},
	NemotronH: {architecture: "NemotronHForCausalLM", leavesAhead: true, mixture: &mixtureNames{experts: 8, mixture: "mixer.", up: "up_proj", down: "down_proj", shared: "shared_experts.", narrow: "fc1_latent_proj", wide: "fc2_latent_proj", class: "mixer."}, absent: nemotronHAbsent, read: (*reading).nemotronH, config: nemotronHConfig, names: (*Mapping).nemotronH,
		prefix: [2]string{"backbone.", "model."},
		about:  "each layer is a state-space scan (Mamba-2), attention, an MLP or MoE; MoE has a sigmoid router, router bias and a shared expert, and experts of the hidden size or of a latent size between projections; NoPE, squared ReLU; these are Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano and Super", refused: "mamba_proj_bias; layers of multi-token prediction are left out with a note; " + noScans},
	Mamba2: {architecture: "Mamba2ForCausalLM", absent: mamba2Absent, read: (*reading).mamba2, config: mamba2Config, names: (*Mapping).nemotronH,
		about: "each layer is a state-space scan (Mamba-2), without an MLP", refused: "use_bias; " + noScans},
	Gemma2: {architecture: "Gemma2ForCausalLM", absent: gemma2Absent, read: (*reading).gemma, config: gemmaConfig,
		about: "sandwich norm with weight+1, GeGLU, sliding window by layer, softcapping of attention scores and logits, scaled embeddings, attention scale from query_pre_attn_scalar", refused: "softcapping of attention scores on CUDA; bidirectional attention"},
	Gemma3: {architecture: "Gemma3ForCausalLM", absent: gemma3Absent, read: (*reading).gemma, config: gemmaConfig,
		about: "as gemma2, with QK-norm, and with a separate RoPE base in sliding-window layers; the text part of gemma3", refused: "images; bidirectional attention"},
	Olmo3: {architecture: "Olmo3ForCausalLM", absent: olmo3Absent, read: (*reading).olmo3, config: olmo3Config,
		about: "post-norm, QK-norm over all heads, sliding window by layer, RoPE scaling only in full-attention layers"},
	Exaone4: {architecture: "Exaone4ForCausalLM", absent: exaone4Absent, read: (*reading).exaone4, config: exaone4Config,
		about: "post-norm, QK-norm per head, sliding window by layer, full-attention layers without RoPE (NoPE)", refused: "a window when no layer has it"},
	SeedOSS: {architecture: "SeedOssForCausalLM", absent: seedAbsent, read: (*reading).seedOSS, config: seedConfig,
		about: "separate settings for biases of QKV, attention output and MLP"},
	Hunyuan: {architecture: "HunYuanDenseV1ForCausalLM", absent: hunyuanAbsent, read: (*reading).hunyuan, config: hunyuanConfig,
		about: "QK-norm after RoPE, NTK-scaled RoPE (base times alpha^(d/(d-2)))"},
	Ernie45: {architecture: "Ernie4_5ForCausalLM", absent: ernieAbsent, read: (*reading).ernie, config: ernieConfig,
		about: "interleaved RoPE"},
	Cohere: {architecture: "CohereForCausalLM", absent: cohereAbsent, read: (*reading).cohere, config: cohereConfig,
		about: "parallel attention and MLP after one LayerNorm without bias, interleaved RoPE, logit scale", refused: "use_qk_norm"},
	Falcon: {architecture: "FalconForCausalLM", absent: falconAbsent, read: (*reading).falcon, config: falconConfig, names: (*Mapping).falcon,
		about: "attention and MLP in parallel (with one norm or two) or one after the other; RoPE or ALiBi by key", refused: "ALiBi on CUDA"},
	OPT: {architecture: "OPTForCausalLM", absent: optAbsent, read: (*reading).opt, config: optConfig, names: (*Mapping).opt,
		about: "learned positional embeddings with offset 2, ReLU; pre-LN, or post-LN in OPT-350m", refused: "word_embed_proj_dim other than hidden_size"},
	MiniMax2: {architecture: "MiniMaxM2ForCausalLM", mixture: numbered(256), absent: miniMaxAbsent, read: (*reading).miniMax, config: miniMaxConfig,
		about: "QK-norm over all heads, partial RoPE, MoE with a sigmoid router and router bias"},
	GPTOSS: {architecture: "GptOssForCausalLM", mixture: &mixtureNames{experts: 128, mixture: "mlp."}, absent: gptOSSAbsent, read: (*reading).gptOSS, config: gptOSSConfig,
		about: "attention sinks, sliding window by layer, YaRN, clamped gated MLP, MoE with biases and stacked expert weights"},
	DeepSeekV2: {architecture: "DeepseekV2ForCausalLM", mixture: gated(64, "shared_experts."), latent: true, absent: deepSeekV2Absent, read: (*reading).deepSeek, config: deepSeekConfig,
		about: "MLA, YaRN with mscale, MoE with a softmax router and expert groups, shared experts, dense first layers", refused: "norm_topk_prob with groups; " + latentRefused},
	DeepSeekV3: {architecture: "DeepseekV3ForCausalLM", predicts: true, mixture: gated(256, "shared_experts."), latent: true, absent: deepSeekV3Absent, read: (*reading).deepSeek, config: deepSeekConfig,
		about: "MLA, MoE with a sigmoid router, router bias and expert groups, shared experts", refused: sigmoidRefused},
	KimiK2: {architecture: "DeepseekV3ForCausalLM", predicts: true, mixture: gated(384, "shared_experts."), latent: true, absent: kimiAbsent, read: (*reading).deepSeek, config: deepSeekConfig,
		about: "as deepseek_v3", refused: sigmoidRefused},
	GLM4MoELite: {architecture: "Glm4MoeLiteForCausalLM", predicts: true, mixture: gated(64, "shared_experts."), latent: true, absent: glmLiteAbsent, read: (*reading).deepSeek, config: deepSeekConfig,
		about: "as deepseek_v3 (GLM-4.7-Flash)", refused: sigmoidRefused},
	Qwen3Next: {architecture: "Qwen3NextForCausalLM", predicts: true, ownAhead: true, mixture: gated(512, "shared_expert."), absent: qwenNextAbsent, read: (*reading).qwenNext, config: qwenNextConfig,
		about: "gated DeltaNet (linear attention) in most layers, output gate of attention, partial RoPE, weight+1 RMSNorm, MoE with a gated shared expert", refused: "attention_bias; " + noState},
	Qwen35: {architecture: "Qwen3_5ForCausalLM", predicts: true, ownAhead: true, absent: qwen35Absent, read: (*reading).qwen35, config: qwen35Config,
		about: "as qwen3_next without MoE; the text part of qwen3_5 (Qwen3.5, Qwen3.6)", refused: "images, attention_bias; " + noState},
	Qwen35MoE: {architecture: "Qwen3_5MoeForCausalLM", predicts: true, ownAhead: true, mixture: gated(256, "shared_expert."), absent: qwen35MoEAbsent, read: (*reading).qwen35, config: qwen35Config,
		about: "as qwen3_next; the text part of qwen3_5_moe", refused: "images, attention_bias; " + noState},
	Gemma4: {architecture: "Gemma4ForCausalLM", absent: gemma4Absent, read: (*reading).gemma4, config: gemma4Config,
		about:   "sandwich norm, QK-norm and norm of values per head, GeGLU, sliding window by layer, wider heads whose keys are also the values in full-attention layers, proportional RoPE, layer scalars; the models E2B and E4B have KV sharing across layers and per-layer embeddings; the model 26B-A4B has MoE in parallel with a dense MLP; the text part of gemma4",
		refused: "images; adapters, Muon and Megatron's formats, which need layers of one shape; several pipeline stages with E2B and E4B; training with top_k_experts 1"},
	Ministral3: {architecture: "Ministral3ForCausalLM", absent: ministral3Absent, read: (*reading).ministral3, config: ministral3Config,
		about: "YaRN, queries scaled by position; the text part of mistral3", refused: "images"},
	LFM2: {architecture: "Lfm2ForCausalLM", absent: lfm2Absent, read: (*reading).lfm2, config: lfm2Config, names: (*Mapping).lfm2,
		about: "short convolutions in most layers, QK-norm per head", refused: "conv_bias; " + noState},
	Llama4: {architecture: "Llama4ForCausalLM", absent: llama4Absent, read: (*reading).llama4, config: llama4Config,
		about: "chunked attention with interleaved RoPE, layers without RoPE (NoPE) whose queries are scaled by position, QK-norm without weights", refused: "layers with experts, images"},
}

// canonical is the model_type of a family that goes by another name too.
func canonical(family string) string {
	if family == "llama4" {
		return Llama4
	}
	if text := wrappers[family]; text != nil {
		return text[0]
	}
	return family
}

// lacks lists what the family's config.json does not say of m, by writing and reading it; unread reports
// that it cannot be read, and the list why.
func (r *row) lacks(family string, m *spec.Model) (list []string, unread bool) {
	decoder := *m
	if r.ownAhead && m.MTP != nil && m.MTP.Depths > 1 {
		return []string{fmt.Sprintf("--mtp-num-layers 1 -> %d", m.MTP.Depths)}, false
	}
	if r.predicts && m.MTP != nil {
		if decoder.MTP = nil; m.MTP.Repeated { // config.json gives further layers by a number, which is read apart
			return []string{"--mtp-use-repeated-layer false -> true"}, false
		}
	}
	m = &decoder
	text, err := json.Marshal(configOf(m, ExportOptions{Family: family, DType: "F32", MaxPositions: max(m.Context, m.MaxPositions)}))
	if err != nil {
		return []string{err.Error()}, true
	}
	back, err := ParseConfig("its config.json", text)
	if err != nil {
		return []string{err.Error()}, true
	}
	return sameModel(back.Model, m), false
}

// sameModel lists where a family's model differs from m, as "setting family's -> m's".
func sameModel(family, m *spec.Model) []string {
	a, b := *family, *m
	for _, x := range []*spec.Model{&a, &b} {
		x.SoftmaxScale, x.PaddedVocabSize, x.LatentEpsilon = x.ScoreScale(), 0, 0 // latentNotes
		if x.Experts != nil {
			e := *x.Experts
			e.ScalingFactor, x.Experts = not1(e.ScalingFactor), &e
		}
	}
	if allExperts(&a) && allExperts(&b) { // no layer has an MLP of this width
		a.FFNHiddenSize, b.FFNHiddenSize = 0, 0
	}
	if allScans(&a) && allScans(&b) { // nor heads of attention
		for _, x := range []*spec.Model{&a, &b} {
			x.NumAttentionHeads, x.NumQueryGroups, x.KVChannels, x.SoftmaxScale, x.FFNHiddenSize, x.Activation = 0, 0, 0, 0, 0, ""
		}
	}
	var list []string
	if gatedMLP(&a) != gatedMLP(&b) { // whatever the first part of its activation is called
		list = append(list, mlpOf(&a)+" -> "+mlpOf(&b)+" ("+b.Activation+")")
		a.Activation = b.Activation
	}
	list = append(list, a.Reshaped(&b)...)
	if a.NormEpsilon != b.NormEpsilon {
		list = append(list, fmt.Sprintf("--norm-epsilon %g -> %g", a.NormEpsilon, b.NormEpsilon))
	}
	for layer := range min(a.NumLayers, b.NumLayers) {
		if a.WindowAt(layer) != b.WindowAt(layer) || a.ChunkAt(layer) != b.ChunkAt(layer) {
			list = append(list, fmt.Sprintf("layer %d's window %d -> %d", layer, a.WindowAt(layer), b.WindowAt(layer)))
		}
	}
	return list
}

// gatedMLP reports whether the MLP has a gate.
func gatedMLP(m *spec.Model) bool {
	a, err := activations.Of(m.Activation)
	return err == nil && a.Row().Gated
}

func mlpOf(m *spec.Model) string {
	if gatedMLP(m) {
		return "an MLP with a gate"
	}
	return "an ungated MLP"
}

// allExperts reports whether every layer is a mixture.
func allExperts(m *spec.Model) bool {
	return m.Experts != nil && !slices.Contains(m.Experts.Layers, false)
}

// allScans reports whether every layer is a state-space scan without an MLP.
func allScans(m *spec.Model) bool {
	return m.Mamba != nil && !slices.Contains(m.Mamba.Layers, false) && m.Sublayers != nil && !slices.ContainsFunc(m.Sublayers, func(s spec.Sublayers) bool { return s != spec.MixerAlone })
}

// unread are keys of a config.json that say nothing about the model's maths.
var unread = strings.Fields("architectures dtype torch_dtype transformers_version _name_or_path _attn_implementation use_cache bos_token_id eos_token_id pad_token_id sep_token_id eod_token_id " +
	"cls_token_id mask_token_id unk_token_id decoder_start_token_id tokenizer_class auto_map cache_implementation pretraining_tp output_router_logits output_attentions output_hidden_states return_dict " +
	"use_return_dict problem_type id2label label2id chunk_size_feed_forward is_encoder_decoder is_decoder torchscript use_bfloat16 unsloth_fixed unsloth_version prefix task_specific_params " +
	"attention_dropout hidden_dropout dropout activation_dropout layerdrop embd_pdrop resid_pdrop init_std experts_per_token initial_context_length org_vocab_size pruned_heads tie_encoder_decoder " +
	"finetuning_task model_max_length _sliding_window_pattern router_jitter_noise for_llm_class attention_head_dim ep_size seq_aux aux_loss_alpha mtp_use_dedicated_embeddings mamba_ssm_dtype " +
	"mamba_chunk_size init_method block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init conv_dim conv_dim_out conv_use_xavier_init theta use_pos_enc " +
	"chunk_size norm_before_gate mamba_ssm_cache_dtype moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type num_logits_to_keep num_query_groups rescale_prenorm_residual time_step_floor " +
	"time_step_max time_step_min time_step_rank use_mamba_kernels")

// understood refuses keys that nobody here reads: a setting that is lost makes another model.
func (c *reading) understood(raw []byte) {
	if c.row.lenient {
		return
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return // said before
	}
	kind := reflect.TypeFor[fields]()
	known := map[string]bool{}
	for i := range kind.NumField() {
		known[kind.Field(i).Tag.Get("json")] = true
	}
	var lost []string
	for key := range all {
		if !known[key] && !slices.Contains(unread, key) {
			lost = append(lost, key)
		}
	}
	if slices.Sort(lost); len(lost) > 0 {
		c.fail("%s: these keys are unknown; remove those that do not change the model", strings.Join(lost, ", "))
	}
}

// inverse is 1/x as a number that people write, where there is one: 1/(1/6) is 6.
func inverse(x float64) float64 {
	if r := math.Round(1e6/x) / 1e6; r != 0 && 1/r == x {
		return r
	}
	return 1 / x
}

// otherwise is a number that 0 stands for.
func otherwise(x, zero float64) float64 {
	if x == 0 {
		return zero
	}
	return x
}

// not1 is a factor as a model has it: 0 for 1.
func not1(x float64) float64 {
	if x == 1 {
		return 0
	}
	return x
}
