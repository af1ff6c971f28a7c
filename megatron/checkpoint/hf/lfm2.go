package hf

import (
	"slices"

	"monotron/megatron/spec"
)

// LFM2: short convolutions in most layers, attention in the others.

func lfm2Absent(f *fields) {
	f.KVHeads, f.MaxPositions, f.RopeTheta, f.PlainEps, f.Intermediate = number(8), number(128000), decimal(1e6), decimal(1e-5), number(12288)
	f.ConvCache, f.BlockMultiple, f.BlockMultiplier, f.BlockAdjust = number(3), number(256), decimal(1), yes(true)
}

func (c *reading) lfm2(f *fields) {
	// Names that differ from Llama's.
	m := c.Model
	if f.PlainEps == nil {
		c.fail("norm_eps is null; it must be a number")
	}
	f.RMSNormEps = f.PlainEps
	if f.BlockFF != nil {
		f.Intermediate = f.BlockFF
	}
	if f.TieEmbedding != nil {
		f.Tie = f.TieEmbedding
	}
	c.decoder(f, true)
	if m.Activation != spec.Swiglu {
		c.fail("hidden_act %q is not supported; it must be silu (transformers' class ignores this key and always uses silu)", text(f.HiddenAct))
	}
	m.QKNorm = true
	c.refuse("conv_bias", f.ConvBias, true)
	m.FFNHiddenSize = c.lfm2Width(f)
	// Which layers are convolutions.
	kinds := f.LayerTypes
	if len(kinds) == 0 {
		for i := range m.NumLayers {
			kind := "conv"
			if f.FullLayers == nil || slices.Contains(f.FullLayers, int64(i)) {
				kind = "full_attention"
			}
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) != m.NumLayers {
		c.fail("layer_types has %d entries for %d layers", len(kinds), m.NumLayers)
		return
	}
	layers := make([]bool, m.NumLayers)
	for i, kind := range kinds {
		if layers[i] = kind == "conv"; !layers[i] && kind != "full_attention" {
			c.fail("layer_types: %q is not supported", kind)
		}
	}
	if slices.Contains(layers, true) {
		m.Conv = &spec.ShortConv{Taps: c.size("conv_L_cache", spec.MostTaps, f.ConvCache), Layers: layers}
	}
}

// lfm2Width is the width of the MLP: where block_auto_adjust_ff_dim is on, two thirds of
// intermediate_size times a factor, rounded up to a multiple.
func (c *reading) lfm2Width(f *fields) int {
	width := c.Model.FFNHiddenSize
	if !given(f.BlockAdjust, true) {
		return width
	}
	width = 2 * width / 3
	if f.BlockMultiplier != nil {
		multiple := c.size("block_multiple_of", maxSize, f.BlockMultiple)
		width = int(c.positive("block_ffn_dim_multiplier", f.BlockMultiplier, 1) * float64(width))
		width = (width + multiple - 1) / multiple * multiple
	}
	return max(1, width)
}

func lfm2Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	delete(c, "rms_norm_eps")
	delete(c, "hidden_act")
	types, taps := make([]string, m.NumLayers), 3
	for i := range types {
		if types[i] = "full_attention"; m.ConvAt(i) {
			types[i] = "conv"
		}
	}
	if m.Conv != nil {
		taps = m.Conv.Taps
	}
	put(c, "norm_eps", m.NormEpsilon, "layer_types", types, "conv_L_cache", taps, "conv_bias", false, "block_auto_adjust_ff_dim", false, "block_multiple_of", 256, "block_ffn_dim_multiplier", 1.0)
}

// lfm2 adds its tensors.
func (mp *Mapping) lfm2() {
	m := mp.Model
	h, hn := m.HiddenSize, m.KVChannels
	mp.embedding("embedding.word_embeddings.weight", "model.embed_tokens.weight")
	for i := range m.NumLayers {
		ours, theirs := layerNames(i, "model.layers.%d.")
		mp.norm(ours+"input_layernorm", theirs+"operator_norm")
		if m.ConvAt(i) {
			mp.linear(ours+"self_attention.in_proj", []string{theirs + "conv.in_proj"}, []int{3 * h}, h, false, false, nil)
			mp.conv(ours+"self_attention.conv1d.weight", theirs+"conv.conv.weight", h, m.Conv.Taps)
			mp.linear(ours+"self_attention.out_proj", []string{theirs + "conv.out_proj"}, []int{h}, h, false, false, nil)
		} else {
			attention := theirs + "self_attn."
			mp.attention(ours+"self_attention.", attention, "out_proj", false, false)
			mp.same(ours+"self_attention.q_layernorm.weight", attention+"q_layernorm.weight", hn)
			mp.same(ours+"self_attention.k_layernorm.weight", attention+"k_layernorm.weight", hn)
		}
		mp.norm(ours+"pre_mlp_layernorm", theirs+"ffn_norm")
		mlp, ffn := theirs+"feed_forward.", m.FFNHiddenSize
		mp.linear(ours+"mlp.linear_fc1", []string{mlp + "w1", mlp + "w3"}, []int{ffn, ffn}, h, false, false, stacked(ffn))
		mp.linear(ours+"mlp.linear_fc2", []string{mlp + "w2"}, []int{h}, ffn, false, false, nil)
	}
	mp.norm("decoder.final_layernorm", "model.embedding_norm")
}
