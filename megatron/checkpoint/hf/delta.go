package hf

import "monotron/megatron/spec"

// Families whose layers have a gated delta net, but some that have attention: Qwen3-Next, Qwen3.5.

func qwenNextAbsent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.PartialRotary = number(2), number(256), number(32768), decimal(0.25)
	f.ConvTaps, f.DeltaKeyDim, f.DeltaValueDim, f.DeltaKeyHeads, f.DeltaValueHeads = number(4), number(128), number(128), number(16), number(32)
	f.MoEIntermediate, f.SharedIntermediate, f.ExpertsPerTok, f.NormTopK = number(512), number(512), number(10), yes(true)
}

func (c *reading) qwenNext(f *fields) {
	c.decoder(f, false)
	c.gatedDeltaNet(f)
	c.experts(f)
}

func qwen35Absent(f *fields) {
	qwenNextAbsent(f)
	f.KVHeads, f.ExpertsPerTok = number(4), nil
}

func qwen35MoEAbsent(f *fields) {
	qwenNextAbsent(f)
	f.ExpertsPerTok = number(8)
}

// qwen35 reads the dense models and, under its own model_type, the mixture. Its class has experts
// in every layer, whose weights are divided by their sum.
func (c *reading) qwen35(f *fields) {
	mixture := c.Family == Qwen35MoE
	if mixture && f.Intermediate == nil {
		f.Intermediate = f.MoEIntermediate // no layer has a dense MLP
	}
	c.decoder(f, false)
	c.gatedDeltaNet(f)
	c.refuse("attn_output_gate", f.QueryGate, false)
	if len(f.DenseLayers) > 0 || f.SparseStep != nil && *f.SparseStep != 1 {
		c.fail("mlp_only_layers and decoder_sparse_step are not supported: all layers of this family have the same kind of MLP")
	}
	c.refuse("norm_topk_prob", f.NormTopK, false)
	if mixture {
		c.experts(f)
	}
}

// gatedDeltaNet reads what layers of both kinds are.
func (c *reading) gatedDeltaNet(f *fields) {
	m := c.Model
	c.refuse("attention_bias", f.AttentionBias, true)
	m.NormOnePlus, m.QKNorm, m.OutputGate = true, true, true
	for name, n := range map[string]*int64{"mtp_num_hidden_layers": f.OwnNextTokens, "num_nextn_predict_layers": f.NextTokens} {
		if n != nil && *n != 0 {
			c.Further = c.size(name, maxLayers, n)
		}
	}
	d := &spec.Delta{KeyHeads: c.size("linear_num_key_heads", maxSize, f.DeltaKeyHeads), ValueHeads: c.size("linear_num_value_heads", maxSize, f.DeltaValueHeads),
		KeyDim: c.size("linear_key_head_dim", maxSize, f.DeltaKeyDim), ValueDim: c.size("linear_value_head_dim", maxSize, f.DeltaValueDim),
		Taps: c.size("linear_conv_kernel_dim", spec.MostTaps, f.ConvTaps), Layers: c.deltaLayers(f)}
	if d.ValueHeads%d.KeyHeads != 0 {
		c.fail("linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", d.ValueHeads, d.KeyHeads)
	}
	m.Delta = d
}

// deltaLayers are the layers of layer_types with linear attention; without it all but every
// full_attention_interval-th, the fourth.
func (c *reading) deltaLayers(f *fields) []bool {
	n, kinds, every := c.Model.NumLayers, f.LayerTypes, c.optional("full_attention_interval", f.FullInterval, 4)
	if len(kinds) > 0 && len(kinds) != n {
		c.fail("layer_types has %d entries for %d layers", len(kinds), n)
		kinds = nil
	}
	layers := make([]bool, n)
	for i := range layers {
		if layers[i] = (i+1)%every != 0; len(kinds) == 0 {
			continue
		}
		if layers[i] = kinds[i] == "linear_attention"; !layers[i] && kinds[i] != "full_attention" {
			c.fail("layer_types: %q is not supported", kinds[i])
			break
		}
	}
	return layers
}

// qwenNextConfig writes a config.json.
func qwenNextConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	if m.Delta != nil {
		deltaConfig(c, m)
	}
	if n := m.MTPLayers(); n > 0 {
		c["mtp_num_hidden_layers"] = n
	}
	if e := m.Experts; e != nil {
		put(c, "num_experts", e.Num, "moe_intermediate_size", e.FFNHiddenSize, "norm_topk_prob", !e.PreSoftmax, "decoder_sparse_step", 1, "mlp_only_layers", denseLayers(e),
			"num_experts_per_tok", e.TopK, "shared_expert_intermediate_size", e.SharedFFN, "output_router_logits", false)
		if len(e.AuxLossCoeff) > 0 {
			put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
		}
	}
}

// ownAhead adds what the layer of multi-token prediction has around it, where it has names of its own. The columns of
// the projection are [embedding; state] on both sides.
func (mp *Mapping) ownAhead(ours string) {
	mp.norm(ours+"enorm", "mtp.pre_fc_norm_embedding")
	mp.norm(ours+"hnorm", "mtp.pre_fc_norm_hidden")
	mp.same(ours+"eh_proj.weight", "mtp.fc.weight", mp.Model.HiddenSize, 2*mp.Model.HiddenSize)
	mp.norm(ours+"final_layernorm", "mtp.norm")
}

// qwen35Config writes a config.json of either family.
func qwen35Config(c map[string]any, m *spec.Model, positions int) {
	qwenNextConfig(c, m, positions)
	for _, key := range []string{"norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"} {
		delete(c, key)
	}
	if m.Experts != nil {
		delete(c, "intermediate_size")
	}
}

func deltaConfig(c map[string]any, m *spec.Model) {
	d, types := m.Delta, make([]string, m.NumLayers)
	for i := range types {
		if types[i] = "full_attention"; d.Layers[i] {
			types[i] = "linear_attention"
		}
	}
	put(c, "attention_bias", false, "attention_dropout", 0.0, "layer_types", types, "linear_conv_kernel_dim", d.Taps, "linear_key_head_dim", d.KeyDim, "linear_value_head_dim", d.ValueDim,
		"linear_num_key_heads", d.KeyHeads, "linear_num_value_heads", d.ValueHeads)
}

// deltaNet adds the tensors of one layer's gated delta net.
func (mp *Mapping) deltaNet(ours, theirs string) {
	d, h := mp.Model.Delta, mp.Model.HiddenSize
	parts := d.Parts()
	wide := parts[0] + parts[1] + parts[2] + parts[3]
	if mp.Family == Qwen3Next {
		mp.linear(ours+"in_proj", []string{theirs + "in_proj_qkvz", theirs + "in_proj_ba"}, []int{wide, parts[4] + parts[5]}, h, false, false, deltaRows(d))
	} else {
		names, rows := []string{theirs + "in_proj_qkv", theirs + "in_proj_z", theirs + "in_proj_b", theirs + "in_proj_a"}, []int{d.Channels(), parts[3], parts[4], parts[5]}
		mp.linear(ours+"in_proj", names, rows, h, false, false, below(rows))
	}
	mp.conv(ours+"conv1d.weight", theirs+"conv1d.weight", d.Channels(), d.Taps)
	mp.same(ours+"dt_bias", theirs+"dt_bias", d.ValueHeads)
	mp.same(ours+"A_log", theirs+"A_log", d.ValueHeads)
	mp.same(ours+"out_norm.weight", theirs+"norm.weight", d.ValueDim)
	mp.linear(ours+"out_proj", []string{theirs + "out_proj"}, []int{h}, parts[2], false, false, nil)
}

// deltaRows: theirs are, per key head, [q | k | its values | their gates], and [b | a] of its value
// heads; ours is [Q | K | V | gates | b | a].
func deltaRows(d *spec.Delta) func(int64) (int, int64) {
	parts, keys := d.Parts(), int64(d.KeyHeads)
	return func(r int64) (int, int64) {
		before := int64(0) // rows of a key head's group that stand before the part's
		for i, rows := range parts {
			if i == 4 {
				before = 0
			}
			each := int64(rows) / keys
			if r < int64(rows) {
				source, first := 0, 0
				if i >= 4 {
					source, first = 1, 4
				}
				group := int64(0)
				for _, n := range parts[first:min(first+4, len(parts))] {
					group += int64(n) / keys
				}
				return source, r/each*group + before + r%each
			}
			r, before = r-int64(rows), before+each
		}
		return 0, r // beyond the last row
	}
}
