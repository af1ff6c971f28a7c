package hf

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"monotron/megatron/spec"
)

// Granite 4: state-space scans (Mamba-2) in most layers, attention in the others.

// timeLimits are the bounds of the time step. transformers writes infinity as an object.
type timeLimits []float64

func (l *timeLimits) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if *l = nil; list == nil {
		return nil
	}
	for _, raw := range list {
		var special struct {
			Float string `json:"__float__"`
		}
		var x float64
		if err := json.Unmarshal(raw, &x); err != nil {
			if json.Unmarshal(raw, &special) != nil || special.Float != "Infinity" {
				return fmt.Errorf("time_step_limit has %s, which is not a number", raw)
			}
			x = math.Inf(1)
		}
		*l = append(*l, x)
	}
	return nil
}

func graniteHybridAbsent(f *fields) {
	graniteAbsent(f)
	f.LocalExperts, f.ExpertsPerTok, f.SharedMLP, f.RouterAuxLoss = number(8), number(2), number(1024), decimal(0.001)
	f.MambaHeads, f.MambaGroups, f.MambaState, f.MambaHeadDim, f.MambaTaps, f.MambaExpand = number(128), number(1), number(256), "auto", number(4), number(2)
	f.MambaConvBias, f.TimeStepLimits = yes(true), timeLimits{0, math.Inf(1)}
}

func (c *reading) graniteHybrid(f *fields) {
	m := c.Model
	c.shape(f, false)
	if m.Activation = c.activation("hidden_act", f.HiddenAct, "silu", true); m.Activation != spec.Swiglu {
		c.fail("hidden_act %q is not supported; it must be silu, which the convolution also uses", text(f.HiddenAct))
	}
	c.graniteFactors(f)
	switch kind := text(f.PositionKind); kind {
	case "rope":
		c.rotary(f)
	case "", "nope":
		m.Position = spec.PositionNone
	default:
		c.fail("position_embedding_type %q is not supported; it must be rope or null", kind)
	}
	if kind := text(f.NormFunction); kind != "" && kind != "rmsnorm" {
		c.fail("normalization_function %q is not supported; transformers' class always computes RMSNorm", kind)
	}
	attention := given(f.AttentionBias, false)
	c.separateBiases(attention, attention, false)
	// One MLP in each layer: next to experts, or alone.
	if f.LocalExperts == nil {
		c.fail("num_local_experts is null; it must be a number")
	} else if shared := c.size("shared_intermediate_size", maxSize, f.SharedMLP); *f.LocalExperts != 0 {
		c.experts(f)
		m.Experts.SharedFFN = shared
	} else {
		m.FFNHiddenSize = shared
	}
	c.scans(f)
}

// scans reads which layers are state-space scans, and their shape.
func (c *reading) scans(f *fields) {
	m := c.Model
	c.refuse("mamba_proj_bias", f.MambaProjBias, true)
	layers := c.scanLayers(f.LayerTypes)
	if !slices.Contains(layers, true) {
		return
	}
	s := &spec.Mamba{Heads: c.size("mamba_n_heads", maxSize, f.MambaHeads), Groups: c.size("mamba_n_groups", maxSize, f.MambaGroups), StateDim: c.size("mamba_d_state", maxSize, f.MambaState),
		Taps: c.size("mamba_d_conv", spec.MostTaps, f.MambaTaps), ConvBias: given(f.MambaConvBias, true), Layers: layers}
	inner := c.size("mamba_expand", maxSize, f.MambaExpand) * m.HiddenSize
	if s.HeadDim = max(1, inner/s.Heads); f.MambaHeadDim != "auto" {
		n, is := f.MambaHeadDim.(float64)
		if s.HeadDim = int(n); !is || float64(s.HeadDim) != n || s.HeadDim < 1 || s.HeadDim > maxSize {
			c.fail("mamba_d_head is %v; it must be \"auto\" or an integer from 1 to %d", f.MambaHeadDim, maxSize)
			return
		}
	}
	if s.Inner() != inner {
		c.fail("mamba_n_heads %d times mamba_d_head %d is %d; it must be %d, which is mamba_expand times hidden_size", s.Heads, s.HeadDim, s.Inner(), inner)
	}
	c.addScans(f, s, "mamba_n_heads", "mamba_n_groups", "mamba_expand, mamba_n_groups and mamba_d_state")
}

// addScans gives the model its scans, with the limits of their time step; heads, groups and widths are names of keys.
func (c *reading) addScans(f *fields, s *spec.Mamba, heads, groups, widths string) {
	switch {
	case s.Channels() > maxSize:
		c.fail("with %s, a convolution has %d channels; at most %d are supported", widths, s.Channels(), maxSize)
	case s.Heads%s.Groups != 0:
		c.fail("%s %d is not a multiple of %s %d", heads, s.Heads, groups, s.Groups)
	}
	l := f.TimeStepLimits
	if len(l) != 2 || !(l[0] >= 0) || !(l[1] >= l[0]) || l[1] == 0 || math.IsInf(l[0], 1) {
		c.fail("time_step_limit is %v; it must have two numbers of 0 or more, and the second must be above 0 and not below the first", l)
		return
	}
	if s.DtMin = l[0]; !math.IsInf(l[1], 1) {
		s.DtMax = l[1]
	}
	c.Model.Mamba = s
}

// scanLayers are the layers of layer_types with scans, in the words of transformers 5 or 4; without it all.
func (c *reading) scanLayers(kinds []string) []bool {
	layers := repeated(c.Model.NumLayers, true)
	if kinds == nil {
		return layers
	}
	if len(kinds) != len(layers) {
		c.fail("layer_types has %d entries for %d layers", len(kinds), len(layers))
		return layers
	}
	for i, kind := range kinds {
		layers[i] = kind == "linear_attention" || kind == "mamba"
		if !layers[i] && kind != "full_attention" && kind != "attention" {
			c.fail("layer_types: %q is not supported", kind)
		}
	}
	return layers
}

func graniteHybridConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	delete(c, "head_dim") // its class computes it
	graniteFactorConfig(c, m)
	types := make([]string, m.NumLayers)
	for i := range types {
		if types[i] = "full_attention"; m.MambaAt(i) {
			types[i] = "linear_attention"
		}
	}
	put(c, "attention_bias", m.QKVBias, "layer_types", types, "position_embedding_type", nil, "shared_intermediate_size", m.FFNHiddenSize, "num_local_experts", 0)
	if m.Position == spec.PositionRope {
		c["position_embedding_type"] = "rope"
	}
	if e := m.Experts; e != nil {
		put(c, "num_local_experts", e.Num, "num_experts_per_tok", e.TopK, "intermediate_size", e.FFNHiddenSize, "shared_intermediate_size", e.SharedFFN, "output_router_logits", false)
		if len(e.AuxLossCoeff) > 0 {
			put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
		}
	}
	// Numbers of scans, with such as the class accepts where no layer has one.
	s := m.Mamba
	if s == nil {
		s = &spec.Mamba{Heads: 2, HeadDim: m.HiddenSize, Groups: 1, StateDim: 256, Taps: 4, ConvBias: true}
	}
	put(c, "mamba_n_heads", s.Heads, "mamba_n_groups", s.Groups, "mamba_d_state", s.StateDim, "mamba_d_head", s.HeadDim, "mamba_d_conv", s.Taps, "mamba_expand", s.Inner()/m.HiddenSize,
		"mamba_conv_bias", s.ConvBias, "mamba_proj_bias", false, "mamba_chunk_size", 256, "time_step_limit", limitsConfig(s))
}

// graniteHybrid adds its tensors.
func (mp *Mapping) graniteHybrid() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "model.embed_tokens.weight")
	for i := range m.NumLayers {
		ours, theirs := layerNames(i, "model.layers.%d.")
		mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
		if m.MambaAt(i) {
			mp.mamba(ours+"mixer.", theirs+"mamba.")
		} else {
			mp.attention(ours+"self_attention.", theirs+"self_attn.", "o_proj", m.QKVBias, m.HasProjBias())
		}
		mp.norm(ours+"pre_mlp_layernorm", theirs+"post_attention_layernorm")
		mlp, ffn := ours+"mlp.", m.FFNHiddenSize
		if m.MixtureAt(i) {
			mp.graniteExperts(mlp, theirs+mp.row.mixture.mixture)
			mlp, ffn = mlp+"shared_experts.", m.Experts.SharedFFN
		}
		mp.linear(mlp+"linear_fc1", []string{theirs + "shared_mlp.input_linear"}, []int{2 * ffn}, h, false, false, nil)
		mp.linear(mlp+"linear_fc2", []string{theirs + "shared_mlp.output_linear"}, []int{h}, ffn, false, false, nil)
	}
	mp.norm("decoder.final_layernorm", "model.norm")
}

// mamba adds a state-space scan with its projections.
func (mp *Mapping) mamba(ours, theirs string) {
	s, h := mp.Model.Mamba, mp.Model.HiddenSize
	for _, name := range []string{"dt_bias", "A_log", "D"} {
		mp.same(ours+name, theirs+name, s.Heads)
	}
	mp.linear(ours+"in_proj", []string{theirs + "in_proj"}, []int{s.Rows()}, h, false, false, nil)
	mp.conv(ours+"conv1d.weight", theirs+"conv1d.weight", s.Channels(), s.Taps)
	if s.ConvBias {
		mp.same(ours+"conv1d.bias", theirs+"conv1d.bias", s.Channels())
	}
	mp.same(ours+"norm.weight", theirs+"norm.weight", s.Inner())
	mp.linear(ours+"out_proj", []string{theirs + "out_proj"}, []int{h}, s.Inner(), false, false, nil)
}

// graniteExperts adds a layer's router and its experts' slabs [out, in].
func (mp *Mapping) graniteExperts(ours, theirs string) {
	e, h := mp.Model.Experts, mp.Model.HiddenSize
	mp.same(ours+"router.weight", theirs+"router.layer.weight", e.Num, h)
	for j := range e.Num {
		expert := fmt.Sprintf("%sexperts.local_experts.%d.", ours, j)
		mp.slab(expert+"linear_fc1.weight", theirs+"input_linear.weight", j, nil, false, 2*e.FFNHiddenSize, h)
		mp.slab(expert+"linear_fc2.weight", theirs+"output_linear.weight", j, nil, false, h, e.FFNHiddenSize)
	}
}
