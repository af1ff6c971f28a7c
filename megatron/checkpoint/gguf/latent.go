package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// DeepSeek and those after it: llama.cpp multiplies queries by each head's part of the up projection (k_b, turned) and
// outputs by the other (v_b), so that attention has one key, the latent.

// latentFamily is a row of the architecture deepseek2.
func latentFamily(name string, is func(s *settling) bool) family {
	f := family{hf: name, arch: "deepseek2", exact: true, mixed: true, sizes: true, names: latentNames, split: splitLatent, keys: latentKeys, is: is,
		describe: (*describing).latent, settle: (*settling).latent, check: (*describing).checkLatent}
	if name == hf.GLM4MoELite {
		f.pre = "glm4"
	}
	return f
}

var latentNames = map[string]string{
	"model.layers.N.self_attn.q_a_proj": "blk.N.attn_q_a", "model.layers.N.self_attn.q_a_layernorm": "blk.N.attn_q_a_norm", "model.layers.N.self_attn.q_b_proj": "blk.N.attn_q_b",
	"model.layers.N.self_attn.kv_a_proj_with_mqa": "blk.N.attn_kv_a_mqa", "model.layers.N.self_attn.kv_a_layernorm": "blk.N.attn_kv_a_norm",
}

var latentKeys = map[string]string{"attention.head_count_kv": "", "expert_shared_feed_forward_length": "", "expert_count": "n_routed_experts", "expert_shared_count": "n_shared_experts",
	"leading_dense_block_count": "first_k_dense_replace", "expert_weights_scale": "routed_scaling_factor"}

// splitLatent cuts the up projection of keys and values by heads.
func splitLatent(m *spec.Model, src hf.Source) (list []part, ok bool) {
	stem, ok := strings.CutSuffix(src.Name, ".self_attn.kv_b_proj.weight")
	if !ok || m.Latent == nil {
		return nil, false
	}
	l := m.Latent
	qk, v, rank := int64(l.QKDim), int64(l.VDim), int64(l.KVRank)
	for h := range int64(m.NumAttentionHeads) {
		at := h * (qk + v)
		list = append(list, part{name: in(stem+".", "attn_k_b.weight"), rows: rank, width: qk, stacked: true, first: -1, step: 1, turned: true, from: at},
			part{name: in(stem+".", "attn_v_b.weight"), rows: v, width: rank, stacked: true, first: -1, at: at + qk, step: 1})
	}
	return list, true
}

func (d *describing) latent() {
	l, e := d.m.Latent, d.m.Experts
	put := func(key string, n int) { d.put(key, uint32(n)) }
	put("attention.head_count_kv", 1)
	if l.QRank > 0 {
		put("attention.q_lora_rank", l.QRank)
	}
	put("attention.kv_lora_rank", l.KVRank)
	put("attention.key_length", l.KVRank+l.RopeDim)
	put("attention.value_length", l.KVRank)
	put("attention.key_length_mla", l.HeadDim())
	put("attention.value_length_mla", l.VDim)
	put("expert_group_count", max(1, e.NumGroups))
	put("expert_group_used_count", max(1, e.GroupTopK))
	if e.ScoreFunction == spec.ScoreSigmoid {
		put("expert_gating_func", 2)
	} else {
		put("expert_gating_func", 1)
	}
	if !e.PreSoftmax && (e.ScoreFunction != spec.ScoreSigmoid || e.TopK > 1) {
		d.put("expert_weights_norm", true)
	}
	if l.Yarn {
		d.yarn(&spec.RopeRule{Factor: &l.Factor, OriginalMax: l.OriginalMax, BetaFast: &l.FastTurns, BetaSlow: &l.SlowTurns})
		if l.MScaleAllDim != 0 {
			d.put("rope.scaling.yarn_log_multiplier", float32(0.1*l.MScaleAllDim)) // llama.cpp takes the 0.1 back
		}
	}
}

func (d *describing) checkLatent() {
	m, l, e := d.m, d.m.Latent, d.m.Experts
	d.need(l != nil, "a model without multi-latent attention")
	d.need(e != nil, "a model without experts")
	if l == nil || e == nil {
		return
	}
	// llama.cpp knows models whose queries have no latent by their number of layers.
	lite := m.NumLayers == 26 || m.NumLayers == 27 || m.NumLayers == 48 && m.VocabSize == 128256
	d.need(lite == (l.QRank == 0), "q_lora_rank %d with %d layers (llama.cpp decides by the number of layers whether it reads q_lora_rank)", l.QRank, m.NumLayers)
	d.need(!m.QKVBias && !m.LinearBias && !m.HasProjBias(), "biases")
	first := max(0, slices.Index(e.Layers, true))
	d.need(!slices.Contains(e.Layers[first:], false), "layers without experts between those with them")
	d.need(e.NumGroups <= 1 || e.ScoreFunction == spec.ScoreSigmoid, "topk_method group_limited_greedy (llama.cpp scores a group by the sum of its two highest scores)")
	d.need(e.NumGroups <= 1 || e.BestOfGroup() == 2, "groups of experts whose score is the sum of their %d highest scores (llama.cpp sums the two highest)", e.BestOfGroup())
	if m.LatentEpsilon != 0 && m.LatentEpsilon != m.NormEpsilon {
		d.notes = append(d.notes, fmt.Sprintf("llama.cpp computes norms of latent vectors with the epsilon of the other norms, %g, but the model uses %g, so results differ slightly", m.NormEpsilon, m.LatentEpsilon))
	}
	if l.Yarn {
		d.need(l.FastTurns == 32 && l.SlowTurns == 1, "beta_fast and beta_slow other than 32 and 1")
		d.need(l.MScaleAllDim != 0 && l.MScale == l.MScaleAllDim || l.MScaleAllDim == 0 && l.MScale == 1, "mscale %v with mscale_all_dim %v", l.MScale, l.MScaleAllDim)
	}
}

// softmaxRouter distinguishes DeepSeek V2 from V3, whose router is a sigmoid.
func (s *settling) softmaxRouter() bool {
	n, ok := s.integer("deepseek2.expert_gating_func")
	_, bias := s.firstBias()
	return ok && n == 1 || (!ok || n == 0) && !bias
}

// firstBias finds a bias of a router.
func (s *settling) firstBias() (string, bool) {
	for _, t := range s.f.Tensors {
		if _, ok := strings.CutSuffix(t.Name, ".exp_probs_b.bias"); ok {
			return t.Name, true
		}
	}
	return "", false
}

func (s *settling) latent() {
	rank, _ := s.take("attention.kv_lora_rank")
	rotary, _ := s.take("rope.dimension_count")
	key, okK := s.take("attention.key_length_mla")
	value, okV := s.take("attention.value_length_mla")
	const missing = "%s is missing: older files, which have kv_b in one tensor, are not supported; convert the model again"
	if !okK {
		s.fail(missing, s.key("attention.key_length_mla"))
	}
	if !okV {
		s.fail(missing, s.key("attention.value_length_mla"))
	}
	if !okK || !okV {
		return
	}
	if n, ok := s.take("attention.key_length"); ok && n != rank+rotary {
		s.fail("%s is %d; it must be %d, the sum of %s and %s", s.key("attention.key_length"), n, rank+rotary, s.key("attention.kv_lora_rank"), s.key("rope.dimension_count"))
	}
	if n, ok := s.take("attention.value_length"); ok && n != rank {
		s.fail("%s is %d; it must be equal to %s, which is %d", s.key("attention.value_length"), n, s.key("attention.kv_lora_rank"), rank)
	}
	if n, ok := s.take("attention.head_count_kv"); ok && n != 1 {
		s.fail("%s is %d; it must be 1", s.key("attention.head_count_kv"), n)
	}
	delete(s.config, "head_dim")
	s.config["kv_lora_rank"], s.config["qk_rope_head_dim"], s.config["qk_nope_head_dim"], s.config["v_head_dim"] = rank, rotary, key-rotary, value
	s.config["num_key_value_heads"] = s.config["num_attention_heads"]
	s.config["q_lora_rank"] = nil
	if n, ok := s.take("attention.q_lora_rank"); ok && n > 0 {
		s.config["q_lora_rank"] = n
	}
	// The router.
	sigmoid := s.family.hf != hf.DeepSeekV2
	s.config["scoring_func"], s.config["topk_method"] = "softmax", "greedy"
	if sigmoid {
		s.config["scoring_func"], s.config["topk_method"] = "sigmoid", "noaux_tc"
	}
	for key, setting := range map[string]string{"expert_group_count": "n_group", "expert_group_used_count": "topk_group"} {
		s.config[setting] = int64(1)
		if n, ok := s.take(key); ok && n > 0 {
			s.config[setting] = n
		}
	}
	s.used[s.key("expert_weights_norm")] = true
	v, _ := s.f.Value(s.key("expert_weights_norm"))
	s.config["norm_topk_prob"], _ = v.Bool()
	s.config["moe_layer_freq"] = int64(1)
	if s.config["first_k_dense_replace"] == nil {
		s.config["first_k_dense_replace"] = int64(0)
	}
	// YaRN's scale of scores.
	if x, ok := s.number("rope.scaling.yarn_log_multiplier"); ok {
		if rule, is := s.config["rope_scaling"].(map[string]any); is && x != 0 {
			scale := math.Round(x/0.1*1e5) / 1e5
			rule["mscale"], rule["mscale_all_dim"] = scale, scale
		}
	}
}
