package gguf

import (
	"cmp"
	"strings"

	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// Mamba-2, Granite 4 and Nemotron-H, with state-space scans in all layers or in some.

// anyContext is the context length that llama.cpp's converter writes where positions are not encoded.
const anyContext = 1 << 20

// scanFamilies are the rows of these families: which of several a model has is decided by its layers.
func scanFamilies() []family {
	granite := func(arch string, of func(m *spec.Model) bool) family {
		return family{hf: hf.GraniteHybrid, arch: arch, of: of, exact: true, permute: true, sizes: true, narrow: true, names: graniteHybridNames, keys: graniteHybridKeys, split: splitGranite, shape: scanShape,
			describe: (*describing).graniteHybrid, settle: (*settling).graniteHybrid, check: (*describing).checkScans}
	}
	nemotron := func(arch string, of func(m *spec.Model) bool) family {
		return family{hf: hf.NemotronH, arch: arch, of: of, custom: true, exact: true, permute: true, mixed: true, activation: spec.SquaredRelu, names: nemotronNames, keys: nemotronKeys, shape: scanShape,
			describe: (*describing).nemotron, settle: (*settling).nemotron, check: (*describing).checkNemotron}
	}
	dense := granite("granite", func(m *spec.Model) bool { return m.Mamba == nil && m.Experts == nil })
	dense.is = func(s *settling) bool { _, ok := s.f.Value("granite.ssm.conv_kernel"); return ok }
	return []family{
		granite("granitehybrid", func(m *spec.Model) bool { return m.Mamba != nil }), dense, granite("granitemoe", func(m *spec.Model) bool { return m.Mamba == nil && m.Experts != nil }),
		nemotron("nemotron_h", func(m *spec.Model) bool { return m.Experts == nil }), nemotron("nemotron_h_moe", func(m *spec.Model) bool { return m.Experts != nil }),
		{hf: hf.Mamba2, arch: "mamba2", custom: true, exact: true, names: nemotronNames, keys: mamba2Keys, shape: scanShape, describe: (*describing).mamba2, settle: (*settling).mamba2, check: (*describing).checkScans},
	}
}

// scanNames are modules of a scan.
var scanNames = map[string]string{"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "norm": "ssm_norm", "out_proj": "ssm_out"}

// withScans are names with those of scans, which files call so.
func withScans(prefix string, names map[string]string) map[string]string {
	for theirs, ours := range scanNames {
		names[prefix+theirs] = "blk.N." + ours
	}
	return names
}

var graniteHybridNames = withScans("model.layers.N.mamba.", map[string]string{
	"model.layers.N.shared_mlp.output_linear": "blk.N.ffn_down", "model.layers.N.block_sparse_moe.router.layer": "blk.N.ffn_gate_inp", "model.layers.N.block_sparse_moe.output_linear": "blk.N.ffn_down_exps",
})

var nemotronNames = withScans("backbone.layers.N.mixer.", map[string]string{
	"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "backbone.layers.N.norm": "blk.N.attn_norm",
	"backbone.layers.N.mixer.q_proj": "blk.N.attn_q", "backbone.layers.N.mixer.k_proj": "blk.N.attn_k", "backbone.layers.N.mixer.v_proj": "blk.N.attn_v", "backbone.layers.N.mixer.o_proj": "blk.N.attn_output",
	"backbone.layers.N.mixer.up_proj": "blk.N.ffn_up", "backbone.layers.N.mixer.down_proj": "blk.N.ffn_down",
	"backbone.layers.N.mixer.gate": "blk.N.ffn_gate_inp", "backbone.layers.N.mixer.gate.e_score_correction": "blk.N.exp_probs_b",
	"backbone.layers.N.mixer.experts.E.up_proj": "blk.N.ffn_up_exps", "backbone.layers.N.mixer.experts.E.down_proj": "blk.N.ffn_down_exps",
	"backbone.layers.N.mixer.fc1_latent_proj": "blk.N.ffn_latent_down", "backbone.layers.N.mixer.fc2_latent_proj": "blk.N.ffn_latent_up",
	"backbone.layers.N.mixer.shared_experts.up_proj": "blk.N.ffn_up_shexp", "backbone.layers.N.mixer.shared_experts.down_proj": "blk.N.ffn_down_shexp",
})

var graniteHybridKeys = map[string]string{"context_length": "", "feed_forward_length": "", "attention.head_count_kv": "", "expert_shared_feed_forward_length": "", "expert_feed_forward_length": "",
	"expert_count": "num_local_experts", "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling",
	"ssm.conv_kernel": "mamba_d_conv", "ssm.state_size": "mamba_d_state", "ssm.group_count": "mamba_n_groups", "ssm.time_step_rank": "mamba_n_heads"}

var nemotronKeys = map[string]string{"block_count": "num_hidden_layers", "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads", "rope.freq_base": "rope_theta",
	"attention.layer_norm_epsilon": "layer_norm_epsilon", "ssm.conv_kernel": "conv_kernel", "ssm.state_size": "ssm_state_size", "ssm.group_count": "n_groups", "ssm.time_step_rank": "mamba_num_heads"}

var mamba2Keys = map[string]string{"block_count": "num_hidden_layers", "embedding_length": "hidden_size", "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
	"ssm.conv_kernel": "conv_kernel", "ssm.state_size": "state_size", "ssm.group_count": "n_groups", "ssm.time_step_rank": "num_heads"}

// scanShape: numbers of heads are columns, weights of the norm a row for each group.
func scanShape(m *spec.Model, name string, rows int64) []int64 {
	switch {
	case name == "ssm_a" || name == "ssm_d":
		return []int64{rows, 1}
	case name == "ssm_norm.weight" && m.Mamba != nil:
		return []int64{int64(m.Mamba.Groups), rows / int64(m.Mamba.Groups)}
	}
	return nil
}

// splitGranite cuts gate and up, which Granite has in one tensor; next to experts the MLP is the shared expert.
func splitGranite(m *spec.Model, src hf.Source) (list []part, ok bool) {
	stem, expert := expertOf(src.Name)
	layer, kind, _ := strings.Cut(strings.TrimPrefix(stem, "model.layers."), ".")
	suffix := ""
	switch kind {
	case "block_sparse_moe.input_linear.weight":
		suffix = "_exps"
	case "shared_mlp.input_linear.weight":
		if m.Experts != nil {
			suffix = "_shexp"
		}
	case "shared_mlp.output_linear.weight":
		if m.Experts == nil {
			return nil, false
		}
		return []part{{name: "blk." + layer + ".ffn_down_shexp.weight", rows: src.Shape[0], width: src.Shape[1], first: -1, step: 1}}, true
	default:
		return nil, false
	}
	rows := src.Shape[0] / 2
	for i, form := range []string{"ffn_gate", "ffn_up"} {
		list = append(list, part{name: "blk." + layer + "." + form + suffix + ".weight", rows: rows, width: src.Shape[1], stacked: expert >= 0, first: -1, at: int64(i) * rows, step: 1})
	}
	return list, true
}

// checkScans compares scans with what llama.cpp computes.
func (d *describing) checkScans() {
	s := d.m.Mamba
	if s == nil {
		d.need(d.f.arch != "mamba2", "a model without state-space scans")
		return
	}
	d.need(s.DtMin == 0 && s.DtMax == 0, "time_step_limit (llama.cpp does not limit time steps)")
	d.need(s.ConvBias, "convolutions without biases (llama.cpp always adds biases)")
	d.need(d.f.arch != "granitehybrid" || s.Inner() == 2*d.m.HiddenSize, "mamba_expand %d (llama.cpp supports only 2)", s.Inner()/d.m.HiddenSize)
}

// eachLayer has n for each layer where it is so, and 0 for the others.
func (d *describing) eachLayer(n int, is func(layer int) bool) []int32 {
	list := make([]int32, d.m.NumLayers)
	for i := range list {
		if is(i) {
			list[i] = int32(n)
		}
	}
	return list
}

// attentionAt reports a layer with attention.
func (d *describing) attentionAt(layer int) bool {
	k := d.m.KindAt(layer)
	return k.Mixer && !k.Scan
}

func (d *describing) graniteHybrid() {
	m := d.m
	ffn, shared := m.FFNHiddenSize, m.FFNHiddenSize
	if e := m.Experts; e != nil {
		ffn, shared = e.FFNHiddenSize, e.SharedFFN
	} else if d.own["num_experts_per_tok"] != nil {
		d.replace("expert_used_count", uint32(0)) // llama.cpp refuses others where there are no experts
	}
	d.put("feed_forward_length", uint32(ffn))
	d.put("expert_shared_feed_forward_length", uint32(shared))
	d.put("attention.head_count_kv", d.eachLayer(m.NumQueryGroups, d.attentionAt))
	// Of layers with scans too where none is: the converter has them of config.json.
	expand, _ := d.config["mamba_expand"].(float64)
	d.put("ssm.inner_size", uint32(expand)*uint32(m.HiddenSize))
	rotates := m.Position == spec.PositionRope
	d.put("rope.scaling.finetuned", rotates) // llama.cpp's switch of rotation
	if d.f.arch == "granitehybrid" {
		d.put("rope.dimension_count", uint32(m.HiddenSize/m.NumAttentionHeads))
	}
	if d.f.arch == "granitemoe" {
		d.put("rope.dimension_count", uint32(m.RotaryDims()))
	}
	if context, ok := d.config["max_position_embeddings"].(float64); ok && (rotates || m.Mamba == nil) {
		d.put("context_length", uint32(context))
	} else {
		d.put("context_length", uint32(anyContext))
	}
}

// replace adds a key in place of another value of it.
func (d *describing) replace(key string, value any) {
	for i := range d.out {
		if d.out[i].Key == d.f.arch+"."+key {
			d.out[i].Value = value
			return
		}
	}
	d.put(key, value)
}

func (d *describing) checkNemotron() {
	m := d.m
	d.checkScans()
	d.need(m.Mamba != nil, "a model without state-space scans (llama.cpp always needs the sizes of scans)")
	if e := m.Experts; e != nil {
		pattern := m.Hybrid()
		d.need(!strings.Contains(pattern, "-"), "the pattern %s, which has both MLPs and experts", pattern)
		d.need(e.NumGroups <= 1 || e.BestOfGroup() == 2, "groups of experts whose score is the sum of their %d highest scores (llama.cpp sums the two highest)", e.BestOfGroup())
	}
}

func (d *describing) nemotron() {
	m := d.m
	put := func(key string, n int) { d.put(key, uint32(n)) }
	put("context_length", anyContext)
	put("attention.key_length", m.KVChannels)
	put("attention.value_length", m.KVChannels)
	put("vocab_size", m.VocabSize)
	put("rope.dimension_count", m.HiddenSize/m.NumAttentionHeads)
	put("ssm.inner_size", m.Mamba.Inner())
	d.put("rope.scaling.finetuned", false)
	if d.own["rms_norm_eps"] != nil || d.own["norm_eps"] != nil {
		d.put("attention.layer_norm_rms_epsilon", float32(m.NormEpsilon))
	}
	// What each layer is.
	width, e := m.FFNHiddenSize, m.Experts
	if e != nil {
		width = e.FFNHiddenSize
	}
	d.put("attention.head_count_kv", d.eachLayer(m.NumQueryGroups, d.attentionAt))
	d.put("feed_forward_length", d.eachLayer(width, m.MLPAt))
	if e == nil {
		return
	}
	put("expert_count", e.Num)
	put("expert_used_count", e.TopK)
	put("expert_feed_forward_length", e.FFNHiddenSize)
	put("expert_shared_feed_forward_length", e.SharedFFN)
	put("expert_shared_count", 1)
	if e.LatentSize > 0 {
		put("moe_latent_size", e.LatentSize)
	}
	put("expert_group_count", max(1, e.NumGroups))
	put("expert_group_used_count", max(1, e.GroupTopK))
	d.put("expert_weights_norm", e.TopK > 1)
	d.put("expert_weights_scale", float32(cmp.Or(e.ScalingFactor, 1)))
}

func (d *describing) mamba2() {
	put := func(key string, n int) { d.put(key, uint32(n)) }
	put("context_length", anyContext)
	put("feed_forward_length", 0)
	put("attention.head_count", 0)
	put("ssm.inner_size", d.m.Mamba.Inner())
}

// layerNumbers is a list with a number for each layer; one number is that of all. Those above zero must be equal: most is
// that number.
func (s *settling) layerNumbers(key string) (list []int64, most int64) {
	layers, _ := s.config["num_hidden_layers"].(int64)
	list = s.ints(key)
	if len(list) == 1 && layers > 1 && layers <= 1<<14 {
		for int64(len(list)) < layers {
			list = append(list, list[0])
		}
	}
	if s.ahead > 0 && int64(len(list)) == layers+s.ahead { // those that predict further tokens are behind
		list = list[:layers]
	}
	if int64(len(list)) != layers || layers == 0 {
		s.fail("%s has %d numbers; it must have one for each of the %d layers", s.key(key), len(list), layers)
		return nil, 0
	}
	for i, n := range list {
		if most > 0 && n > 0 && n != most {
			s.fail("%s is %d in layer %d, but %d in an earlier layer; the numbers above 0 must be equal", s.key(key), n, i, most)
			return nil, 0
		}
		most = max(most, n)
	}
	return list, most
}

// scanWidth is the channels of a head, by the number of heads in the setting.
func (s *settling) scanWidth(setting string) (inner, width int64) {
	inner, ok := s.take("ssm.inner_size")
	heads, _ := s.config[setting].(int64)
	switch {
	case !ok || inner < 1:
		s.fail("%s must be an integer of at least 1", s.key("ssm.inner_size"))
		return 0, 0
	case heads < 1:
		s.fail("%s must be an integer of at least 1", s.key("ssm.time_step_rank"))
		return 0, 0
	case inner%heads != 0:
		s.fail("%s %d is not a multiple of %s %d", s.key("ssm.inner_size"), inner, s.key("ssm.time_step_rank"), heads)
		return 0, 0
	}
	return inner, inner / heads
}

// expansion is how many times the hidden size all heads have.
func (s *settling) expansion(setting string, inner int64) {
	hidden, _ := s.config["hidden_size"].(int64)
	if hidden < 1 || inner%hidden != 0 {
		s.fail("%s %d is not a multiple of %s %d", s.key("ssm.inner_size"), inner, s.key("embedding_length"), hidden)
		return
	}
	s.config[setting] = inner / hidden
}

// rotates reads llama.cpp's switch of rotation.
func (s *settling) rotates() bool {
	s.used[s.key("rope.scaling.finetuned")] = true
	v, ok := s.f.Value(s.key("rope.scaling.finetuned"))
	on, is := v.Bool()
	if ok && !is {
		s.fail("%s is %s; it must be of type BOOL", s.key("rope.scaling.finetuned"), v.Kind())
	}
	return !ok || on
}

func (s *settling) graniteHybrid() {
	c := s.config
	// Layers, and where attention has biases.
	groups, most := s.layerNumbers("attention.head_count_kv")
	scans := make([]bool, len(groups))
	for i, n := range groups {
		scans[i] = n == 0 && s.family.arch == "granitehybrid"
		if !scans[i] {
			_, c["attention_bias"] = s.f.Tensor(layerTensor(i, "attn_q.bias"))
		}
	}
	c["layer_types"], c["num_key_value_heads"] = layerKinds(scans, "linear_attention", "full_attention"), max(most, 1)
	if c["position_embedding_type"] = "nope"; s.rotates() {
		c["position_embedding_type"] = "rope"
	}
	if n, ok := s.take("context_length"); ok && n > 0 {
		c["max_position_embeddings"] = n
	}
	// Scans.
	var inner int64
	inner, c["mamba_d_head"] = s.scanWidth("mamba_n_heads")
	s.expansion("mamba_expand", inner)
	s.convBias("mamba_conv_bias")
	// The MLP, and experts.
	width, _ := s.take("feed_forward_length")
	shared, ok := s.take("expert_shared_feed_forward_length")
	if !ok {
		shared = width
	}
	if c["intermediate_size"], c["shared_intermediate_size"] = width, shared; c["num_local_experts"] == nil {
		c["num_local_experts"] = int64(0)
		if shared != width {
			s.fail("%s is %d and %s is %d; without experts both are the width of the MLP and must be equal", s.key("feed_forward_length"), width, s.key("expert_shared_feed_forward_length"), shared)
		}
	}
}

// convBias reads from the first convolution whether all have biases.
func (s *settling) convBias(setting string) {
	layers, _ := s.config["num_hidden_layers"].(int64)
	for i := range min(layers, 1<<14) {
		if _, ok := s.f.Tensor(layerTensor(int(i), "ssm_conv1d.weight")); ok {
			_, s.config[setting] = s.f.Tensor(layerTensor(int(i), "ssm_conv1d.bias"))
			return
		}
	}
}

func (s *settling) nemotron() {
	c := s.config
	_, c["mamba_head_dim"] = s.scanWidth("mamba_num_heads")
	s.convBias("use_conv_bias")
	if s.rotates() {
		s.fail("%s is not false, but layers of this architecture do not use RoPE", s.key("rope.scaling.finetuned"))
	}
	if x, ok := s.number("attention.layer_norm_rms_epsilon"); ok {
		c["layer_norm_epsilon"] = fraction(x) // llama.cpp takes it first
	}
	s.still = true
	s.take("context_length")
	c["max_position_embeddings"] = int64(anyContext)
	// What each layer is: attention has keys, an MLP a width, a scan neither.
	mlp := "mlp"
	if s.family.arch == "nemotron_h_moe" {
		mlp = "moe"
		s.nemotronExperts()
	}
	groups, most := s.layerNumbers("attention.head_count_kv")
	widths, width := s.layerNumbers("feed_forward_length")
	if groups == nil || widths == nil {
		return
	}
	kinds := make([]string, len(groups))
	for i := range kinds {
		switch {
		case groups[i] > 0 && widths[i] > 0:
			s.fail("layer %d has both %s and %s; a layer must have only one of them", i, s.key("attention.head_count_kv"), s.key("feed_forward_length"))
		case groups[i] > 0:
			kinds[i] = "full_attention"
		case widths[i] > 0:
			kinds[i] = mlp
		default:
			kinds[i] = "linear_attention"
		}
	}
	c["layers_block_type"], c["num_key_value_heads"], c["intermediate_size"] = kinds, max(most, 1), max(width, 1)
	if n := c["moe_intermediate_size"]; n != nil && width > 0 && n != width {
		s.fail("%s is %v and %s is %d; both are the width of an expert and must be equal", s.key("expert_feed_forward_length"), n, s.key("feed_forward_length"), width)
	}
}

// nemotronExperts reads the mixtures.
func (s *settling) nemotronExperts() {
	c := s.config
	for key, setting := range map[string]string{"expert_count": "n_routed_experts", "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
		"expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size", "expert_group_count": "n_group", "expert_group_used_count": "topk_group"} {
		n, ok := s.take(key)
		if !ok {
			v, _ := s.f.Value(s.key(key))
			s.fail("%s is %s; it must be an integer of at least 1", s.key(key), v.Kind())
			continue
		}
		if n < 1 {
			s.fail("%s is %d; it must be at least 1", s.key(key), n)
			continue
		}
		c[setting] = n
	}
	if n, ok := s.take("expert_shared_count"); ok && n != 1 {
		s.fail("%s is %d; in this architecture it must be 1", s.key("expert_shared_count"), n)
	}
	if n, ok := s.take("moe_latent_size"); ok && n > 0 {
		c["moe_latent_size"] = n
	}
	s.used[s.key("expert_weights_norm")] = true
	v, _ := s.f.Value(s.key("expert_weights_norm"))
	c["norm_topk_prob"], _ = v.Bool()
	if x, ok := s.number("expert_weights_scale"); ok && x != 0 {
		c["routed_scaling_factor"] = fraction(x)
	}
}

func (s *settling) mamba2() {
	if n, ok := s.take("context_length"); ok && n > 0 {
		s.config["max_position_embeddings"] = n
	}
	var inner int64
	inner, s.config["head_dim"] = s.scanWidth("num_heads")
	s.expansion("expand", inner)
	s.convBias("use_conv_bias")
	for _, key := range []string{"feed_forward_length", "attention.head_count"} {
		if n, ok := s.take(key); ok && n != 0 {
			s.fail("%s is %d, but this architecture has neither attention nor MLPs", s.key(key), n)
		}
	}
}
