package hf

import (
	"cmp"
	"fmt"
	"slices"

	"monotron/megatron/spec"
)

// Families with multi-latent attention: DeepSeek and those after it.

func deepSeekV2Absent(f *fields) {
	f.FirstDense, f.ScoringFunc, f.TopKMethod = number(0), word("softmax"), word("greedy")
	f.QueryRank, f.SharedExperts = number(1536), number(2)
}

func deepSeekV3Absent(f *fields) {
	f.KVHeads, f.QueryRank, f.MaxPositions, f.NextTokens = number(128), number(1536), number(4096), number(1)
	f.ScoringFunc, f.TopKMethod, f.Groups, f.GroupTopK, f.RoutedScaling = word("sigmoid"), word("noaux_tc"), number(8), number(4), decimal(2.5)
	f.FirstDense, f.SharedExperts = number(3), number(1)
}

func kimiAbsent(f *fields) {
	deepSeekV3Absent(f)
	f.FirstDense = number(1)
}

func glmLiteAbsent(f *fields) {
	f.KVHeads, f.QueryRank, f.MaxPositions, f.RMSNormEps = number(20), number(768), number(202752), decimal(1e-5)
	f.ScoringFunc, f.TopKMethod, f.RoutedScaling = word("sigmoid"), word("noaux_tc"), decimal(1.8)
	f.FirstDense, f.SharedExperts = number(1), number(1)
}

// latentEpsilon is that of the norms of latents in transformers' classes, whatever rms_norm_eps is.
const latentEpsilon = 1e-6

// latentNotes say what transformers' classes compute otherwise: the norms of latents with another epsilon, and the
// weights of the chosen experts without dividing them by their sum, which DeepSeek's own code does.
func latentNotes(m *spec.Model) (notes []string) {
	if m.Latent == nil {
		return nil
	}
	if e := cmp.Or(m.LatentEpsilon, m.NormEpsilon); e != latentEpsilon {
		notes = append(notes, fmt.Sprintf("transformers computes norms of latent vectors with epsilon %g, but the model uses %g, so results differ slightly; --latent-norm-epsilon sets the epsilon", latentEpsilon, e))
	}
	if e := m.Experts; e != nil && e.ScoreFunction != spec.ScoreSigmoid && !e.PreSoftmax && e.TopK > 1 {
		notes = append(notes, "transformers ignores norm_topk_prob of deepseek_v2, so it does not normalize the weights of the chosen experts and its results differ; vLLM and DeepSeek's own code follow norm_topk_prob")
	}
	return notes
}

// deepSeek reads both forms of attention: latent, which transformers' classes have, and
// Llama's, where DeepSeek's own configs say so (use_mla).
func (c *reading) deepSeek(f *fields) {
	if !given(f.UseLatent, true) {
		c.llama(f)
		return
	}
	f.HeadDim = f.RotaryHeadDim // as these classes set it: RoPE reads it
	c.llama(f)
	m := c.Model
	if m.NumQueryGroups != m.NumAttentionHeads {
		c.fail("num_key_value_heads %d with %d heads is not supported: latent attention has keys and values for every head", m.NumQueryGroups, m.NumAttentionHeads)
	}
	c.refuse("rope_interleave", f.RopeInterleave, false)
	l := &spec.Latent{KVRank: c.size("kv_lora_rank", maxSize, f.KeyValueRank), QKDim: c.size("qk_nope_head_dim", maxSize, f.PlainHeadDim),
		RopeDim: c.size("qk_rope_head_dim", maxSize, f.RotaryHeadDim), VDim: c.size("v_head_dim", maxSize, f.ValueHeadDim), Norms: true,
		Factor: 1, MScale: 1, OriginalMax: spec.YarnOriginalMax, FastTurns: spec.YarnFastTurns, SlowTurns: spec.YarnSlowTurns}
	if n := f.QueryHeadDim; n != nil && *n != int64(l.HeadDim()) {
		c.fail("qk_head_dim is %d, but qk_nope_head_dim %d and qk_rope_head_dim %d add up to %d", *n, l.QKDim, l.RopeDim, l.HeadDim())
	}
	if f.QueryRank != nil {
		l.QRank = c.size("q_lora_rank", maxSize, f.QueryRank)
	}
	c.latentRope(l)
	if m.NormEpsilon != latentEpsilon {
		m.LatentEpsilon = latentEpsilon
	}
	m.Latent, m.KVChannels = l, l.Channels()
}

// latentRope takes the rule of frequencies that rotary has read: YaRN, or none.
func (c *reading) latentRope(l *spec.Latent) {
	m := c.Model
	if m.RopeScaling != nil || m.RotaryInterpolation > 1 {
		c.fail("latent attention with a rope_type other than yarn is not supported")
	}
	if m.RopeRule == "" || len(c.problems) > 0 {
		return
	}
	r, err := spec.ParseRopeRule(m.RopeRule, l.RopeDim)
	switch {
	case err != nil:
		c.fail("the rotary parameters: %v", err)
		return
	case r.Type != spec.RopeYarn || r.AttentionFactor != nil || r.Truncate != nil && !*r.Truncate:
		c.fail("latent attention with the rotary parameters %s is not supported; use rope_type yarn without attention_factor", m.RopeRule)
		return
	}
	// Fields that are absent or 0 have a default.
	value := func(x *float64, otherwise float64) float64 {
		if x == nil || *x == 0 {
			return otherwise
		}
		return *x
	}
	l.Yarn, l.Factor, l.OriginalMax = true, *r.Factor, r.OriginalMax
	l.FastTurns, l.SlowTurns = value(r.BetaFast, spec.YarnFastTurns), value(r.BetaSlow, spec.YarnSlowTurns)
	l.MScale, l.MScaleAllDim = value(r.MScale, 0), value(r.MScaleAllDim, 0)
	switch {
	// mscale and mscale_all_dim scale cosines and sines, and the scores: DeepSeek gives both or neither.
	case l.MScale != 0 && l.MScaleAllDim != 0:
	case l.MScaleAllDim != 0:
		c.fail("mscale_all_dim %v without mscale is not supported, because the programs that run these models disagree on its meaning", l.MScaleAllDim)
	default:
		l.MScale = 1 // without both, cosines and sines grow by the plain factor
	}
	m.RopeRule = ""
}

// latent adds the tensors of one layer's attention but the output projection, which every
// family has. Rows lie as ours.
func (mp *Mapping) latent(ours, theirs string) {
	m, l := mp.Model, mp.Model.Latent
	heads, h := m.NumAttentionHeads, m.HiddenSize
	if l.QRank > 0 {
		mp.same(ours+"linear_q_down_proj.weight", theirs+"q_a_proj.weight", l.QRank, h)
		mp.same(ours+"q_layernorm.weight", theirs+"q_a_layernorm.weight", l.QRank)
		mp.same(ours+"linear_q_up_proj.weight", theirs+"q_b_proj.weight", heads*l.HeadDim(), l.QRank)
	} else {
		mp.same(ours+"linear_q_proj.weight", theirs+"q_proj.weight", heads*l.HeadDim(), h)
	}
	mp.same(ours+"linear_kv_down_proj.weight", theirs+"kv_a_proj_with_mqa.weight", l.KVRank+l.RopeDim, h)
	mp.same(ours+"kv_layernorm.weight", theirs+"kv_a_layernorm.weight", l.KVRank)
	mp.same(ours+"linear_kv_up_proj.weight", theirs+"kv_b_proj.weight", heads*(l.QKDim+l.VDim), l.KVRank)
}

// deepSeekConfig writes a config.json. Without latent attention it is one of DeepSeek's own,
// which no class of transformers reads.
func deepSeekConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	if m.Latent == nil {
		put(c, "use_mla", false)
	} else {
		latentConfig(c, m)
	}
	if m.Experts != nil {
		deepSeekExpertConfig(c, m)
	}
}

func latentConfig(c map[string]any, m *spec.Model) {
	l := m.Latent
	put(c, "head_dim", l.RopeDim, "qk_rope_head_dim", l.RopeDim, "qk_nope_head_dim", l.QKDim, "qk_head_dim", l.HeadDim(), "v_head_dim", l.VDim,
		"kv_lora_rank", l.KVRank, "q_lora_rank", nil, "attention_bias", false, "rope_interleave", true)
	if l.QRank > 0 {
		put(c, "q_lora_rank", l.QRank)
	}
	if !l.Yarn {
		return
	}
	yarn := func() map[string]any {
		return map[string]any{"rope_type": "yarn", "factor": real(l.Factor), "original_max_position_embeddings": l.OriginalMax,
			"beta_fast": real(l.FastTurns), "beta_slow": real(l.SlowTurns), "mscale": real(l.MScale), "mscale_all_dim": real(l.MScaleAllDim)}
	}
	scaling, parameters := yarn(), yarn()
	scaling["type"], parameters["rope_theta"] = "yarn", real(m.RotaryBase)
	put(c, "rope_scaling", scaling, "rope_parameters", parameters)
}

func deepSeekExpertConfig(c map[string]any, m *spec.Model) {
	e := m.Experts
	first := max(0, slices.Index(e.Layers, true))
	put(c, "n_routed_experts", e.Num, "n_shared_experts", e.SharedFFN/max(1, e.FFNHiddenSize), "moe_intermediate_size", e.FFNHiddenSize, "num_experts_per_tok", e.TopK,
		"first_k_dense_replace", first, "moe_layer_freq", layerStep(e.Layers, first), "n_group", max(1, e.NumGroups), "topk_group", max(1, e.GroupTopK),
		"routed_scaling_factor", otherwise(e.ScalingFactor, 1), "num_nextn_predict_layers", m.MTPLayers(), "output_router_logits", false)
	if len(e.AuxLossCoeff) > 0 {
		put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
	}
	if c["model_type"] == GLM4MoELite {
		kinds := make([]string, len(e.Layers))
		for i := range kinds {
			if kinds[i] = "dense"; e.Layers[i] {
				kinds[i] = "sparse"
			}
		}
		put(c, "mlp_layer_types", kinds)
	}
	if e.ScoreFunction == spec.ScoreSigmoid {
		put(c, "norm_topk_prob", e.TopK > 1, "scoring_func", "sigmoid", "topk_method", "noaux_tc")
		return
	}
	put(c, "norm_topk_prob", !e.PreSoftmax, "scoring_func", "softmax", "topk_method", "greedy", "mlp_bias", false)
	if e.NumGroups > 0 {
		put(c, "topk_method", "group_limited_greedy")
	}
}

// layerStep is the least number whose multiples, from layer first on, have experts.
func layerStep(layers []bool, first int) int {
	for step := 1; step < len(layers); step++ {
		fits := true
		for i := first; i < len(layers); i++ {
			fits = fits && layers[i] == (i%step == 0)
		}
		if fits {
			return step
		}
	}
	return 1 // what is read back then differs, and is refused
}

// writable reports whether transformers' class of a family can be what m is. Those of these families always have
// latent attention, and the scores of their routers are what the class says, whatever scoring_func is.
func writable(family string, m *spec.Model) bool {
	row := rows[family]
	if row == nil || !row.latent {
		return row != nil
	}
	return m.Latent != nil && (m.Experts == nil || (family == DeepSeekV2) == (m.Experts.ScoreFunction != spec.ScoreSigmoid))
}

// routerOf says what the router of such a family's class always is.
func routerOf(family string) string {
	if family == DeepSeekV2 {
		return "a softmax router"
	}
	return "a sigmoid router"
}
