package hf

import (
	"fmt"
	"slices"

	"monotron/megatron/spec"
)

// What transformers' classes with experts make of a config.json, written apart from experts.go.

// expertCount is how many experts a layer has.
func (p peer) expertCount() float64 {
	for _, key := range []string{"num_local_experts", "num_experts", "n_routed_experts"} {
		if n, ok := p.config[key].(float64); ok {
			return n
		}
	}
	return map[string]float64{Mixtral: 8, Qwen2MoE: 60, Qwen3MoE: 128, OLMoE: 64, GLM4MoE: 128}[p.family]
}

// sparse reports whether a layer is a mixture.
func (p peer) sparse(layer int) bool {
	switch p.family {
	case Mixtral, OLMoE:
		return true
	case GLM4MoE:
		return float64(layer) >= p.number("first_k_dense_replace", 1)
	case Qwen2MoE, Qwen3MoE:
		dense, _ := p.config["mlp_only_layers"].([]any)
		return (layer+1)%max(1, int(p.number("decoder_sparse_step", 1))) == 0 && !slices.Contains(dense, any(float64(layer)))
	}
	return false
}

// router lists what a layer's router does otherwise than m's.
func (p peer) router(m *spec.Model, same func(what string, theirs, ours float64)) {
	e, truth := m.Experts, map[bool]float64{true: 1}
	for layer := range m.NumLayers {
		same(fmt.Sprintf("experts in layer %d", layer), truth[p.sparse(layer)], truth[m.MixtureAt(layer)])
	}
	same("num_experts_per_tok", p.number("num_experts_per_tok", map[string]float64{Mixtral: 2, Qwen2MoE: 4, Qwen3MoE: 8, OLMoE: 8, GLM4MoE: 8}[p.family]), float64(e.TopK))
	one := func(x float64) float64 {
		if x == 0 {
			return 1
		}
		return x
	}
	if p.family != GLM4MoE {
		same("a softmax over the chosen experts", truth[p.family == Mixtral || p.on("norm_topk_prob", false)], truth[!e.PreSoftmax && e.ScoreFunction == spec.ScoreSoftmax])
		same("the factor of expert weights", 1, one(e.ScalingFactor))
		same("groups of experts", 0, float64(e.NumGroups))
		return
	}
	same("sigmoid scores", 1, truth[e.ScoreFunction == spec.ScoreSigmoid])
	same("weights divided by their sum", truth[p.on("norm_topk_prob", true)], truth[e.TopK > 1])
	same("routed_scaling_factor", p.number("routed_scaling_factor", 1), one(e.ScalingFactor))
	same("n_group", p.number("n_group", 1), one(float64(e.NumGroups)))
	same("topk_group", p.number("topk_group", 1), one(float64(e.GroupTopK)))
	if p.number("n_group", 1) > 1 {
		same("the number of experts that determine the score of a group", 2, float64(e.TopK/max(1, e.GroupTopK)))
	}
}

// experts adds the tensors of a layer's mixture.
func (p peer) experts(s shapes, layer string, h, ffn float64) {
	mixture, n := layer+"mlp.", p.expertCount()
	// Names and widths by family.
	gate, up, down := "gate_proj", "up_proj", "down_proj"
	switch p.family {
	case Mixtral:
		mixture, gate, up, down = layer+"block_sparse_moe.", "w1", "w3", "w2"
	case Qwen2MoE, GLM4MoE:
		ffn = p.number("moe_intermediate_size", 1408)
	case Qwen3MoE:
		ffn = p.number("moe_intermediate_size", 768)
	}
	mlp := func(name string, ffn float64) {
		s.add(mixture+name+gate+".weight", ffn, h)
		s.add(mixture+name+up+".weight", ffn, h)
		s.add(mixture+name+down+".weight", h, ffn)
	}
	// Router, experts, shared expert.
	s.add(mixture+"gate.weight", n, h)
	for j := range int(n) {
		mlp(fmt.Sprintf("experts.%d.", j), ffn)
	}
	switch p.family {
	case Qwen2MoE:
		mlp("shared_expert.", p.number("shared_expert_intermediate_size", 5632))
		s.add(mixture+"shared_expert_gate.weight", 1, h)
	case GLM4MoE:
		mlp("shared_experts.", ffn*p.number("n_shared_experts", 1))
		s.add(mixture+"gate.e_score_correction_bias", n)
	}
}
