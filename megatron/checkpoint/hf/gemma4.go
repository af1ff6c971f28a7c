package hf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/spec"
)

// Gemma 4: layers with a window, and full ones whose heads are others.

func gemma4Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.GlobalHeadDim, f.MaxPositions, f.SlidingWindow, f.PerLayerInput, f.PerLayerVocab = number(4), number(256), number(512), number(131072), number(512), number(256), number(262144)
}

func (c *reading) gemma4(f *fields) {
	m := c.Model
	c.shape(f, true)
	m.Activation = c.activation("hidden_activation", f.HiddenActivation, "gelu_pytorch_tanh", true)
	m.NormSandwich, m.QKNorm, m.ValueNorm, m.LayerScalar, m.SoftmaxScale = true, true, true, true, 1
	m.EmbeddingScale = not1(math.Sqrt(float64(m.HiddenSize)))
	m.LogitCap = c.positive("final_logit_softcapping", f.LogitCap, 0)
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	c.gemma4Refuses(f)
	if len(f.LayerTypes) == 0 {
		for i := range m.NumLayers {
			f.LayerTypes = append(f.LayerTypes, map[bool]string{true: "sliding_attention", false: "full_attention"}[(i+1)%6 != 0])
		}
	}
	if len(f.LayerTypes) != m.NumLayers {
		c.fail("layer_types has %d entries for %d layers", len(f.LayerTypes), m.NumLayers)
		return
	}
	f.LayerTypes = slices.Clone(f.LayerTypes)
	f.LayerTypes[m.NumLayers-1] = "full_attention" // as its class makes it
	if !slices.Contains(f.LayerTypes, "sliding_attention") {
		c.fail("layer_types: at least one layer before the last must be sliding_attention; the last layer is always full_attention")
		return
	}
	c.layerWindows(f, nil)
	c.gemma4Heads(f)
	c.gemma4Rotary(f)
	c.gemma4Small(f)
	if given(f.MixtureBlock, false) {
		c.gemma4Experts(f)
	}
}

// gemma4Small reads what models for small machines have (E2B, E4B): layers that share keys and values, and
// embeddings of each layer.
func (c *reading) gemma4Small(f *fields) {
	m := c.Model
	if n := f.SharedKV; n != nil && *n != 0 {
		if *n < 0 || *n >= int64(m.NumLayers) {
			c.fail("num_kv_shared_layers is %d; with %d layers it must be from 0 to %d", *n, m.NumLayers, m.NumLayers-1)
			return
		}
		m.KVShared, m.WideShared = int(*n), given(f.DoubleWide, false)
		if !m.AllHaveKeys() {
			c.fail("num_kv_shared_layers %d: each of the last %d layers uses the keys of an earlier layer of its type, but layer_types has no such layer for one of them", *n, *n)
		}
	}
	if n := f.PerLayerInput; n == nil || *n == 0 {
		return
	}
	m.PerLayerInput = c.size("hidden_size_per_layer_input", maxSize, f.PerLayerInput)
	switch n := f.PerLayerVocab; {
	case n == nil:
		c.fail("vocab_size_per_layer_input is absent, so transformers' class uses 262144; it must equal vocab_size, which is %d", m.VocabSize)
	case *n != int64(m.VocabSize):
		c.fail("vocab_size_per_layer_input is %d; it must equal vocab_size, which is %d", *n, m.VocabSize)
	}
}

// gemma4Experts reads the mixture of 26B-A4B, in parallel with the MLP of every layer. Its class has no loss
// that balances.
func (c *reading) gemma4Experts(f *fields) {
	m := c.Model
	m.ParallelMLP = true
	m.Experts = &spec.Experts{ScoreFunction: spec.ScoreSoftmax, Dispatcher: "alltoall", DropPolicy: "probs", Balancing: []string{spec.NoBalancing}, AuxLossCoeff: []float64{0},
		Num: c.size("num_experts", int64(maxMixed/m.NumLayers), f.Experts), FFNHiddenSize: c.size("moe_intermediate_size", maxSize, f.MoEIntermediate), Layers: repeated(m.NumLayers, true)}
	m.Experts.TopK = c.size("top_k_experts", int64(m.Experts.Num), f.TopKExperts)
}

// gemma4Refuses names what nobody here has.
func (c *reading) gemma4Refuses(f *fields) {
	if f.Bidirectional != nil && f.Bidirectional != "vision" && f.Bidirectional != false {
		c.fail("use_bidirectional_attention %v is not supported", f.Bidirectional)
	}
}

// gemma4Heads reads width and groups of the full layers' heads: per_layer_config, or the same for all
// by global_head_dim and num_global_key_value_heads.
func (c *reading) gemma4Heads(f *fields) {
	m := c.Model
	m.KeysAreValues = given(f.KeysAreValues, false)
	full := &spec.FullAttention{KVChannels: m.KVChannels, NumQueryGroups: m.NumQueryGroups}
	if f.PerLayer == nil {
		full.KVChannels = c.size("global_head_dim", maxSize, f.GlobalHeadDim)
		if m.KeysAreValues && f.GlobalKVHeads != nil {
			full.NumQueryGroups = c.size("num_global_key_value_heads", maxSize, f.GlobalKVHeads)
		}
	} else {
		c.gemma4PerLayer(f, full)
	}
	if m.NumAttentionHeads%full.NumQueryGroups != 0 {
		c.fail("the %d key and value heads of full_attention layers do not divide num_attention_heads %d", full.NumQueryGroups, m.NumAttentionHeads)
		return
	}
	if full.KVChannels%2 != 0 {
		c.fail("head_dim %d of full_attention layers must be even, because RoPE rotates pairs of channels", full.KVChannels)
	}
	m.Full = full
}

// gemma4PerLayer reads per_layer_config, which must say the same of all full layers and nothing of the others.
func (c *reading) gemma4PerLayer(f *fields, full *spec.FullAttention) {
	// All full layers alike.
	var first map[string]int64
	for i, kind := range f.LayerTypes {
		own := f.PerLayer[strconv.Itoa(i)]
		switch {
		case kind != "full_attention" && len(own) > 0:
			c.fail("per_layer_config of layer %d: this is not a full_attention layer; only full_attention layers can be changed", i)
			return
		case kind == "full_attention" && first != nil && !maps.Equal(own, first):
			c.fail("per_layer_config of layer %d differs from that of an earlier full_attention layer; all of these layers must be changed in the same way", i)
			return
		case kind == "full_attention" && first == nil:
			if first = own; first == nil {
				first = map[string]int64{}
			}
		}
	}
	// Heads, and nothing else.
	for name, n := range first {
		switch name {
		case "head_dim":
			full.KVChannels = c.size("head_dim", maxSize, &n)
		case "num_key_value_heads":
			full.NumQueryGroups = c.size("num_key_value_heads", maxSize, &n)
		default:
			c.fail("per_layer_config: %s is not supported", name)
		}
	}
	for name := range f.PerLayer {
		if i, err := strconv.Atoi(name); err != nil || i < 0 || i >= c.Model.NumLayers {
			c.fail("per_layer_config names layer %q; the layers are 0 to %d", name, c.Model.NumLayers-1)
		}
	}
}

// gemma4Rotary reads the tables of both kinds of layers.
func (c *reading) gemma4Rotary(f *fields) {
	m := c.Model
	m.Position = spec.PositionRope
	quarter := 0.25
	full, sliding := &rope{RopeRule: spec.RopeRule{Type: spec.RopeProportional}, Theta: decimal(1e6), PartialRotary: &quarter}, &rope{RopeRule: spec.RopeRule{Type: spec.RopeDefault}, Theta: decimal(1e4)}
	r := f.RopeParameters
	if r != nil && !slices.Equal(r.types, []string{"full_attention", "sliding_attention"}) { // its class has no other table to use
		c.fail("rope_parameters must have exactly two tables, full_attention and sliding_attention")
		return
	}
	if r != nil && r.byType != nil {
		full, sliding = c.byType(r)
	} else if r != nil {
		full, sliding = r, r
	}
	if full == nil || sliding == nil {
		return
	}
	if full.Theta == nil || sliding.Theta == nil {
		c.fail("rope_parameters: rope_theta is missing; both tables must have it")
	}
	m.RotaryBase = c.positive("rope_theta", full.Theta, 10000)
	partial := 1.0
	if full.PartialRotary != nil {
		partial = c.positive("partial_rotary_factor", full.PartialRotary, 1)
	}
	switch full.RopeRule.Type {
	case spec.RopeDefault:
	case spec.RopeProportional:
		if partial > 1 {
			c.fail("partial_rotary_factor %v is above 1", partial)
		}
		m.RopeRule = (&spec.RopeRule{Type: spec.RopeProportional, Partial: &partial}).Text()
	default:
		c.fail("rope_type %s of full_attention is not supported; it must be default or proportional", full.RopeRule.Type)
	}
	if sliding.RopeRule.Type != spec.RopeDefault {
		c.fail("rope_type %s of sliding_attention is not supported; it must be default", sliding.RopeRule.Type)
		return
	}
	sliding = &rope{RopeRule: sliding.RopeRule, Theta: sliding.Theta} // its class turns complete heads
	c.windowRope(sliding)
}

func gemma4Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	for _, key := range []string{"hidden_act", "rope_theta", "rope_scaling", "partial_rotary_factor"} {
		delete(c, key)
	}
	windowConfig(c, m, nil)
	put(c, "hidden_activation", activationName(m), "attention_bias", m.QKVBias, "final_logit_softcapping", nil, "attention_k_eq_v", m.KeysAreValues,
		"num_kv_shared_layers", m.KVShared, "hidden_size_per_layer_input", m.PerLayerInput, "vocab_size_per_layer_input", m.VocabSize, "enable_moe_block", m.ParallelMLP,
		"use_double_wide_mlp", m.WideShared, "use_bidirectional_attention", nil)
	if e := m.Experts; e != nil {
		put(c, "num_experts", e.Num, "top_k_experts", e.TopK, "moe_intermediate_size", e.FFNHiddenSize)
	}
	if m.LogitCap > 0 {
		put(c, "final_logit_softcapping", m.LogitCap)
	}
	// A rotary table for each kind of layer.
	full := map[string]any{"rope_type": "default", "rope_theta": real(m.RotaryBase)}
	if m.RopeRule != "" {
		full = ruleConfig(m.RopeRule)
		full["rope_theta"] = real(m.RotaryBase)
	}
	sliding := map[string]any{"rope_type": "default", "rope_theta": real(m.RotaryBase)}
	if m.WindowRope != "" {
		sliding = ruleConfig(m.WindowRope)
	}
	c["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": sliding}
	if m.Full == nil {
		return
	}
	// Heads of full layers, in both spellings.
	per := map[string]any{}
	for i := range m.NumLayers {
		if !m.WindowedAt(i) {
			per[fmt.Sprint(i)] = map[string]any{"head_dim": m.Full.KVChannels, "num_key_value_heads": m.Full.NumQueryGroups}
		}
	}
	put(c, "per_layer_config", per, "global_head_dim", m.Full.KVChannels)
	if m.KeysAreValues {
		put(c, "num_global_key_value_heads", m.Full.NumQueryGroups)
	}
}

// gemma4Own adds what a layer has after its MLP.
func (mp *Mapping) gemma4Own(ours, theirs string) {
	h, w := mp.Model.HiddenSize, mp.Model.PerLayerInput
	mp.same(ours+"per_layer_gate.weight", theirs+"per_layer_input_gate.weight", w, h)
	mp.same(ours+"per_layer_projection.weight", theirs+"per_layer_projection.weight", h, w)
	mp.norm(ours+"post_per_layer_layernorm", theirs+"post_per_layer_input_norm")
}

// gemma4Inputs adds what the embeddings of all layers are made of.
func (mp *Mapping) gemma4Inputs() {
	m := mp.Model
	all := m.NumLayers * m.PerLayerInput
	shape := dims([]int{m.VocabSize, all})
	mp.add(rule{global: "embedding.per_layer_embeddings.weight", shape: shape, sources: []Source{{Name: "model.embed_tokens_per_layer.weight", Shape: shape}}, vocab: true})
	mp.same("embedding.per_layer_projection.weight", "model.per_layer_model_projection.weight", all, m.HiddenSize)
	mp.same("embedding.per_layer_layernorm.weight", "model.per_layer_projection_norm.weight", m.PerLayerInput)
}

// gemma4Mixture adds a mixture: its router, the norms around it, and slabs [out, in] of all experts.
func (mp *Mapping) gemma4Mixture(ours, theirs string) {
	m, e := mp.Model, mp.Model.Experts
	h, ffn := m.HiddenSize, e.FFNHiddenSize
	mp.same(ours+"router.weight", theirs+"router.proj.weight", e.Num, h)
	mp.same(ours+"router.layernorm.weight", theirs+"router.scale", h)
	mp.same(ours+"router.expert_scale", theirs+"router.per_expert_scale", e.Num)
	mp.norm(ours+"post_mlp_layernorm", theirs+"post_feedforward_layernorm_1")
	mp.norm(ours+"pre_experts_layernorm", theirs+"pre_feedforward_layernorm_2")
	mp.norm(ours+"post_experts_layernorm", theirs+"post_feedforward_layernorm_2")
	for j := range e.Num {
		expert := fmt.Sprintf("%sexperts.local_experts.%d.", ours, j)
		mp.slab(expert+"linear_fc1.weight", theirs+"experts.gate_up_proj", j, nil, false, 2*ffn, h)
		mp.slab(expert+"linear_fc2.weight", theirs+"experts.down_proj", j, nil, false, h, ffn)
	}
}

// keysUnread reports a tensor of keys and values in a layer that reads another's: files may have them, and transformers
// leaves them out.
func (mp *Mapping) keysUnread(name string) bool {
	for i := mp.Model.NumLayers - max(0, mp.Model.KVShared); i < mp.Model.NumLayers; i++ {
		rest, ok := strings.CutPrefix(name, fmt.Sprintf("model.layers.%d.self_attn.", i))
		if ok && slices.Contains([]string{"k_proj.weight", "v_proj.weight", "k_norm.weight", "v_norm.weight"}, rest) {
			return true
		}
	}
	return false
}
