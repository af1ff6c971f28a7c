package hf

import (
	"math"
	"slices"

	"monotron/megatron/spec"
)

// Mamba-2: every layer is a state-space scan, without an MLP.

func mamba2Absent(f *fields) {
	f.VocabSize, f.HiddenSize, f.Layers, f.MaxPositions = number(32768), number(4096), number(64), number(1<<20)
	f.NumHeads, f.HeadDim, f.ScanGroups, f.ScanStateSize, f.ScanTaps, f.ScanExpand = number(128), number(64), number(8), number(128), number(4), number(2)
	f.LayerNormEps, f.InitializerRange, f.ScanConvBias, f.TimeStepLimits = decimal(1e-5), decimal(0.1), yes(true), timeLimits{0, math.Inf(1)}
}

func (c *reading) mamba2(f *fields) {
	m := c.Model
	// No layer has heads of attention or an MLP: their numbers are those of scans and of the flags' defaults.
	f.Heads, f.KVHeads, f.RMSNormEps = f.NumHeads, f.NumHeads, f.LayerNormEps
	hidden := int64(c.size("hidden_size", maxSize/4, f.HiddenSize))
	f.Intermediate = number(4 * hidden)
	c.shape(f, false)
	m.Position, m.Activation, m.Sublayers = spec.PositionNone, spec.GeluErf, slices.Repeat([]spec.Sublayers{spec.MixerAlone}, m.NumLayers)
	if act := text(f.HiddenAct); act != "" && act != "silu" {
		c.fail("hidden_act %q is not supported; it must be silu", act)
	}
	c.refuse("use_bias", f.UseBias, true)
	c.refuse("rms_norm", f.ScanNorm, false)
	s := &spec.Mamba{Heads: m.NumAttentionHeads, Groups: c.size("n_groups", maxSize, f.ScanGroups), HeadDim: m.KVChannels, StateDim: c.size("state_size", maxSize, f.ScanStateSize),
		Taps: c.size("conv_kernel", spec.MostTaps, f.ScanTaps), ConvBias: given(f.ScanConvBias, true), Layers: repeated(m.NumLayers, true)}
	if inner := c.size("expand", maxSize, f.ScanExpand) * m.HiddenSize; s.Inner() != inner {
		c.fail("num_heads %d times head_dim %d is %d; it must be %d, which is expand times hidden_size", s.Heads, s.HeadDim, s.Inner(), inner)
	}
	c.addScans(f, s, "num_heads", "n_groups", "expand, n_groups and state_size")
}

func mamba2Config(c map[string]any, m *spec.Model, positions int) {
	put(c, "num_hidden_layers", m.NumLayers, "hidden_size", m.HiddenSize, "layer_norm_epsilon", m.NormEpsilon, "hidden_act", "silu", "use_bias", false, "residual_in_fp32", true, "max_position_embeddings", positions)
	s := m.Mamba
	if s == nil {
		return // what is read back has scans
	}
	put(c, "num_heads", s.Heads, "head_dim", s.HeadDim, "n_groups", s.Groups, "state_size", s.StateDim, "conv_kernel", s.Taps, "expand", max(1, s.Inner()/m.HiddenSize),
		"use_conv_bias", s.ConvBias, "chunk_size", 256, "time_step_limit", limitsConfig(s))
}

// limitsConfig are the limits of time steps as transformers writes them.
func limitsConfig(s *spec.Mamba) []any {
	limits := []any{real(s.DtMin), map[string]any{"__float__": "Infinity"}}
	if s.DtMax > 0 {
		limits[1] = real(s.DtMax)
	}
	return limits
}
