package hf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"monotron/megatron/spec"
)

// Gemma 4: layers with a window, and full ones whose heads are others.

func gemma4Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.GlobalHeadDim, f.MaxPositions, f.SlidingWindow, f.PerLayerInput = number(4), number(256), number(512), number(131072), number(512), number(256)
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
	if len(f.LayerTypes) != m.NumLayers || !slices.Contains(f.LayerTypes, "sliding_attention") {
		c.fail("layer_types has %d entries for %d layers; sliding_attention must be among them", len(f.LayerTypes), m.NumLayers)
		return
	}
	f.LayerTypes = slices.Clone(f.LayerTypes)
	f.LayerTypes[m.NumLayers-1] = "full_attention" // as its class makes it
	if !slices.Contains(f.LayerTypes, "sliding_attention") {
		c.fail("layer_types: no layer but the last, which is always full_attention, has sliding_attention")
		return
	}
	c.layerWindows(f, nil)
	c.gemma4Heads(f)
	c.gemma4Rotary(f)
}

// gemma4Refuses names what the models with experts and those for small machines have besides.
func (c *reading) gemma4Refuses(f *fields) {
	c.refuse("enable_moe_block", f.MixtureBlock, true)
	for name, n := range map[string]*int64{"num_kv_shared_layers": f.SharedKV, "hidden_size_per_layer_input": f.PerLayerInput} {
		if n != nil && *n != 0 {
			c.fail("%s %d is not supported: this is of E2B and E4B", name, *n)
		}
	}
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
		c.fail("%d key and value heads of full layers do not divide num_attention_heads %d", full.NumQueryGroups, m.NumAttentionHeads)
		return
	}
	if full.KVChannels%2 != 0 {
		c.fail("head_dim %d of full layers is the number of rotating channels, which must be even", full.KVChannels)
	}
	m.Full = full
}

// gemma4PerLayer reads per_layer_config, which must say the same of all full layers and nothing of the others.
func (c *reading) gemma4PerLayer(f *fields, full *spec.FullAttention) {
	var first map[string]int64
	for i, kind := range f.LayerTypes {
		own := f.PerLayer[strconv.Itoa(i)]
		switch {
		case kind != "full_attention" && len(own) > 0, kind == "full_attention" && first != nil && !maps.Equal(own, first):
			c.fail("per_layer_config of layer %d: it may change layers of full_attention alone, all of them alike", i)
			return
		case kind == "full_attention" && first == nil:
			if first = own; first == nil {
				first = map[string]int64{}
			}
		}
	}
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
		c.fail("rope_parameters must have a table of full_attention and one of sliding_attention, and nothing else")
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
		c.fail("rope_type %s of full_attention is not supported; default and proportional are", full.RopeRule.Type)
	}
	if sliding.RopeRule.Type != spec.RopeDefault {
		c.fail("rope_type %s of sliding_attention is not supported; default is", sliding.RopeRule.Type)
		return
	}
	sliding = &rope{RopeRule: sliding.RopeRule, Theta: sliding.Theta} // its class turns whole heads
	c.windowRope(sliding)
}

func gemma4Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	for _, key := range []string{"hidden_act", "rope_theta", "rope_scaling", "partial_rotary_factor"} {
		delete(c, key)
	}
	windowConfig(c, m)
	put(c, "hidden_activation", activationName(m), "attention_bias", m.QKVBias, "final_logit_softcapping", nil, "attention_k_eq_v", m.KeysAreValues,
		"num_kv_shared_layers", 0, "hidden_size_per_layer_input", 0, "enable_moe_block", false, "use_double_wide_mlp", false, "use_bidirectional_attention", nil)
	if m.LogitCap > 0 {
		put(c, "final_logit_softcapping", m.LogitCap)
	}
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
