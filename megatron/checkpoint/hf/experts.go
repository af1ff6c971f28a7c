package hf

import (
	"fmt"
	"slices"

	"monotron/megatron/spec"
)

// mixtureNames are what a family calls the parts of a layer's mixture of experts, whose
// router is `gate` and whose experts are `experts.J`.
type mixtureNames struct {
	experts        int64  // of the class, where no key gives a number
	mixture        string // in the layer
	gate, up, down string // of an expert
	shared         string // the shared expert, in the mixture; "": the family has none
	narrow, wide   string // the projections around experts, in the mixture; "": the family has none
	class          string // the mixture in transformers' class, where files call it otherwise; "": mlp.
}

// The names of most families.
func gated(experts int64, shared string) *mixtureNames {
	return &mixtureNames{experts: experts, mixture: "mlp.", gate: "gate_proj", up: "up_proj", down: "down_proj", shared: shared}
}

// The names of Mixtral.
func numbered(experts int64) *mixtureNames {
	return &mixtureNames{experts: experts, mixture: "block_sparse_moe.", gate: "w1", up: "w3", down: "w2"}
}

// experts reads the mixture of a family that has one.
func (c *reading) experts(f *fields) {
	m := c.Model
	e := &spec.Experts{ScoreFunction: spec.ScoreSoftmax, Dispatcher: "alltoall", DropPolicy: "probs", Balancing: []string{"aux_loss"}, AuxLossCoeff: []float64{0.001}}
	if f.RouterAuxLoss != nil {
		e.AuxLossCoeff[0] = *f.RouterAuxLoss
	}
	// How many, how wide, how many of them a token.
	e.Num = c.size("the number of experts", int64(maxMixed/m.NumLayers), c.numExperts(f))
	e.TopK = c.size("num_experts_per_tok", int64(e.Num), f.ExpertsPerTok)
	e.Layers = repeated(m.NumLayers, true)
	e.FFNHiddenSize = m.FFNHiddenSize
	if !slices.Contains([]string{Mixtral, OLMoE, MiniMax2, GPTOSS, GraniteHybrid}, c.Family) {
		e.FFNHiddenSize = c.size("moe_intermediate_size", maxSize, f.MoEIntermediate)
	}
	m.Experts = e
	// Further settings of each family.
	switch c.Family {
	case OLMoE:
		e.PreSoftmax = !given(f.NormTopK, false)
	case Qwen2MoE, Qwen3MoE, Qwen3Next, Qwen35MoE:
		e.PreSoftmax = !given(f.NormTopK, false)
		c.sparseLayers(f)
		if c.Family != Qwen3MoE {
			e.SharedFFN, e.SharedGate = c.size("shared_expert_intermediate_size", maxSize, f.SharedIntermediate), true
		}
	case GLM4MoE, DeepSeekV2, DeepSeekV3, KimiK2, GLM4MoELite, NemotronH:
		c.deepSeekExperts(f)
	}
	if !slices.Contains(e.Layers, true) {
		c.fail("model_type is that of a model with experts, but no layer has any; set model_type to that of the dense model")
	}
}

// numExperts is the number under whichever name it has; several must agree.
func (c *reading) numExperts(f *fields) (n *int64) {
	for _, v := range []*int64{f.Experts, f.LocalExperts, f.RoutedExperts} {
		if n != nil && v != nil && *n != *v {
			c.fail("the keys for the number of experts (num_experts, num_local_experts, n_routed_experts) have different values: %d and %d", *n, *v)
		}
		if v != nil {
			n = v
		}
	}
	if n == nil {
		n = number(c.row.mixture.experts)
	}
	return n
}

// sparseLayers: every decoder_sparse_step-th layer has experts, but for mlp_only_layers.
func (c *reading) sparseLayers(f *fields) {
	for _, layer := range f.DenseLayers {
		if layer < 0 || layer >= int64(c.Model.NumLayers) {
			c.fail("mlp_only_layers names layer %d; the %d layers are 0 to %d", layer, c.Model.NumLayers, c.Model.NumLayers-1)
		}
	}
	step := c.optional("decoder_sparse_step", f.SparseStep, 1)
	for i := range c.Model.Experts.Layers {
		c.Model.Experts.Layers[i] = (i+1)%step == 0 && !slices.Contains(f.DenseLayers, int64(i))
	}
}

// deepSeekExperts reads what DeepSeek's mixtures have, and GLM 4.5's: first layers without
// experts, several shared experts in one, groups, a factor.
func (c *reading) deepSeekExperts(f *fields) {
	e := c.Model.Experts
	// Shared experts, and which layers have a mixture.
	if n := f.SharedExperts; n != nil && *n != 0 {
		e.SharedFFN = e.FFNHiddenSize * c.size("n_shared_experts", maxMixed, n)
	}
	if n := f.FirstDense; n != nil && *n < 0 {
		c.fail("first_k_dense_replace is %d; it must be 0 or more", *n)
	}
	if e.SharedFFN == 0 && c.Family == GLM4MoE {
		c.fail("n_shared_experts of 0 is not supported: this class always has shared experts")
	}
	step := c.optional("moe_layer_freq", f.LayerFreq, 1)
	for i := range e.Layers {
		e.Layers[i] = (f.FirstDense == nil || int64(i) >= *f.FirstDense) && i%step == 0
	}
	if c.Family == GLM4MoELite && len(f.MLPTypes) > 0 {
		c.mlpTypes(f.MLPTypes)
	}
	// The router, of which three combinations exist.
	factor := c.positive("routed_scaling_factor", f.RoutedScaling, 1)
	if factor != 1 {
		e.ScalingFactor = factor
	}
	norm, method, score := given(f.NormTopK, c.Family != DeepSeekV2), text(f.TopKMethod), text(f.ScoringFunc)
	switch {
	case score == "sigmoid" && method == "noaux_tc":
		e.ScoreFunction, e.ExpertBias, e.BiasUpdateRate, e.RouterDtype = spec.ScoreSigmoid, true, 0.001, "fp32"
		c.expertGroups(f, 2)
		if norm != (e.TopK > 1) {
			c.fail("norm_topk_prob %v with %d experts per token is not supported; it must be true for several experts per token and false for one", norm, e.TopK)
		}
	case score == "softmax" && method == "greedy":
		e.PreSoftmax = !norm
		if norm && factor != 1 {
			c.fail("norm_topk_prob with routed_scaling_factor %g is not supported: versions of DeepSeek's code disagree on whether both apply", factor)
		}
	case score == "softmax" && method == "group_limited_greedy":
		e.PreSoftmax = true
		c.expertGroups(f, 1)
		if norm {
			c.fail("norm_topk_prob with topk_method group_limited_greedy is not supported")
		}
	default:
		c.fail("scoring_func %q with topk_method %q is not supported; it must be sigmoid with noaux_tc, or softmax with greedy or group_limited_greedy", score, method)
	}
}

// mlpTypes are the layers with experts, layer by layer; its class reads these and no other key.
func (c *reading) mlpTypes(kinds []string) {
	e := c.Model.Experts
	if len(kinds) != len(e.Layers) {
		c.fail("mlp_layer_types has %d entries for %d layers", len(kinds), len(e.Layers))
		return
	}
	for i, kind := range kinds {
		if e.Layers[i] = kind == "sparse"; !e.Layers[i] && kind != "dense" {
			c.fail("mlp_layer_types: %q is not supported", kind)
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// expertGroups reads the groups, whose score is the sum of their best so many.
func (c *reading) expertGroups(f *fields, best int) {
	e := c.Model.Experts
	groups, chosen := c.optional("n_group", f.Groups, 1), c.optional("topk_group", f.GroupTopK, 1)
	if groups == 1 && chosen == 1 {
		return
	}
	size := e.Num / groups // of a group
	switch {
	case e.Num%groups != 0:
		c.fail("n_group %d does not divide the %d experts", groups, e.Num)
		return
	case chosen > groups:
		c.fail("topk_group %d is above n_group %d", chosen, groups)
		return
	case e.TopK > size*chosen:
		c.fail("topk_group %d selects groups with %d experts in all, but a token needs %d experts", chosen, size*chosen, e.TopK)
		return
	case best > size:
		c.fail("n_group %d leaves %d experts in each group, but the score of a group is the sum of its %d highest scores", groups, size, best)
		return
	}
	e.NumGroups, e.GroupTopK = groups, chosen
	if e.TopK%chosen != 0 || e.TopK/chosen != best {
		e.GroupBest = best
	}
}

// experts adds the mixture of a layer: its router, and each expert under its global number.
func (mp *Mapping) experts(ours, layer string) {
	m, e, names := mp.Model, mp.Model.Experts, mp.row.mixture
	h, ffn, theirs := m.HiddenSize, e.FFNHiddenSize, layer+names.mixture
	mp.same(ours+"router.weight", theirs+"gate.weight", e.Num, h)
	if e.ExpertBias {
		bias := "gate.e_score_correction_bias"
		if mp.Family == MiniMax2 {
			bias = "e_score_correction_bias"
		}
		mp.same(ours+"router.expert_bias", theirs+bias, e.Num)
	}
	if e.LatentSize > 0 {
		mp.linear(ours+"fc1_latent_proj", []string{theirs + names.narrow}, []int{e.LatentSize}, h, false, false, nil)
		mp.linear(ours+"fc2_latent_proj", []string{theirs + names.wide}, []int{h}, e.LatentSize, false, false, nil)
	}
	mlp := func(to, from string, h, ffn int) {
		if m.Gated() {
			mp.linear(to+"linear_fc1", []string{from + names.gate, from + names.up}, []int{ffn, ffn}, h, false, false, stacked(ffn))
		} else {
			mp.linear(to+"linear_fc1", []string{from + names.up}, []int{ffn}, h, false, false, nil)
		}
		mp.linear(to+"linear_fc2", []string{from + names.down}, []int{h}, ffn, false, false, nil)
	}
	for j := range e.Num {
		mlp(fmt.Sprintf("%sexperts.local_experts.%d.", ours, j), fmt.Sprintf("%sexperts.%d.", theirs, j), m.ExpertWidth(), ffn)
	}
	if e.SharedFFN > 0 {
		if e.SharedGate {
			mp.same(ours+"shared_experts.gate_weight", theirs+"shared_expert_gate.weight", 1, h)
		}
		mlp(ours+"shared_experts.", theirs+names.shared, h, e.SharedFFN)
	}
}

// expertConfig says a mixture as its family's config.json does.
func expertConfig(c map[string]any, m *spec.Model) {
	e, family := m.Experts, c["model_type"]
	put(c, "num_experts_per_tok", e.TopK, "output_router_logits", false)
	if len(e.AuxLossCoeff) > 0 {
		put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
	}
	switch family {
	case Mixtral:
		put(c, "num_local_experts", e.Num, "intermediate_size", e.FFNHiddenSize)
	case OLMoE:
		put(c, "num_experts", e.Num, "intermediate_size", e.FFNHiddenSize, "norm_topk_prob", !e.PreSoftmax, "clip_qkv", nil)
	case Qwen2MoE, Qwen3MoE:
		put(c, "num_experts", e.Num, "moe_intermediate_size", e.FFNHiddenSize, "norm_topk_prob", !e.PreSoftmax, "decoder_sparse_step", 1, "mlp_only_layers", denseLayers(e))
		if family == Qwen2MoE {
			put(c, "shared_expert_intermediate_size", e.SharedFFN, "qkv_bias", m.QKVBias)
		}
	case GLM4MoE:
		factor := e.ScalingFactor
		if factor == 0 {
			factor = 1
		}
		put(c, "n_routed_experts", e.Num, "n_shared_experts", e.SharedFFN/e.FFNHiddenSize, "moe_intermediate_size", e.FFNHiddenSize, "norm_topk_prob", e.TopK > 1,
			"first_k_dense_replace", slices.Index(e.Layers, true), "n_group", max(1, e.NumGroups), "topk_group", max(1, e.GroupTopK), "routed_scaling_factor", factor,
			"num_nextn_predict_layers", m.MTPLayers(), "use_qk_norm", m.QKNorm)
	}
}

// denseLayers are those without experts.
func denseLayers(e *spec.Experts) []int {
	list := []int{}
	for i, on := range e.Layers {
		if !on {
			list = append(list, i)
		}
	}
	return list
}
