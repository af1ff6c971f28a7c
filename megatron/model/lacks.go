package model

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// lacks names the first part of a model that cannot be computed on a device, or that does
// not fit the rest of the model.
func lacks(d *device.Device, m *spec.Model) error {
	bad := func(format string, args ...any) error { return exitcode.Errorf(exitcode.Usage, format, args...) }
	// What kernels of a GPU do not compute.
	if d != nil && d.IsGPU() { // lists of parameters need no device
		switch {
		case m.ScoreCap > 0:
			return bad("--attention-softcap cannot be combined with --device cuda, whose attention kernels do not support it; use --device cpu")
		case m.AlibiTable:
			return bad("--alibi-by-key cannot be combined with --device cuda, whose attention kernels only add slopes by distance; use --device cpu")
		}
	}
	// Multi-latent attention has its own projections, norms and rotary channels, for which these options do not
	// exist.
	if m.Latent != nil {
		for _, part := range []struct {
			given bool
			flag  string
		}{
			{m.NoRope != nil, "no-rope-freq"}, {m.Sinks, "softmax-type learnable"}, {m.QKL2Norm, "qk-l2-norm"}, {m.QueryGrowth != 0, "query-growth"},
			{m.QKNormAfterRope, "qk-layernorm-after-rope"}, {m.WindowRope != "", "window-rope-parameters"}, {m.RopeRule != "", "rope-parameters"},
			{m.RotaryInterpolation > 1, "rotary-seq-len-interpolation-factor"}, {m.HasProjBias() != m.LinearBias, "add-proj-bias or --disable-proj-bias"},
		} {
			if part.given {
				return bad("--%s cannot be combined with --multi-latent-attention; leave one out", part.flag)
			}
		}
	}
	if flag := m.LacksSublayers(); flag != "" {
		return bad("--%s cannot be combined with --hybrid-layer-pattern, whose layers have one sublayer each; leave one out", flag)
	}
	switch {
	// Combinations of Gemma 4, whose layers are written for its own settings only.
	case m.KeysAreValues && (!m.QKNorm || !m.ValueNorm || m.QKNormFull || m.QKNormAfterRope || m.Latent != nil):
		return bad("--keys-are-values needs --qk-layernorm (of each head, before RoPE) and --v-layernorm")
	case m.KVShared > 0 && m.KVShared >= m.NumLayers:
		return bad("--kv-shared-layers must be below --num-layers %d, not %d", m.NumLayers, m.KVShared)
	case m.KVShared > 0 && (!m.QKNorm || m.QKNormFull || m.QKNormAfterRope || !m.ValueNorm || m.OutputGate || m.QKVBias || m.Latent != nil || m.KeepsState()):
		return bad("--kv-shared-layers %d needs --qk-layernorm (of each head, before RoPE) and --v-layernorm, and cannot be combined with biases of QKV or --attention-output-gate", m.KVShared)
	case m.KVShared > 0 && !m.AllHaveKeys():
		return bad("--kv-shared-layers %d: a layer with a window needs the keys and values of an earlier layer with a window, and a layer without a window those of an earlier layer without one, but there is no such layer; lower --kv-shared-layers", m.KVShared)
	case m.WideShared && m.KVShared == 0:
		return bad("--double-wide-mlp needs --kv-shared-layers")
	case m.PerLayerInput > 0 && (!m.Gated() || m.MTP != nil || m.GateLimit != 0 || m.GateOffset != 0 || m.LinearBias):
		return bad("--per-layer-input-size needs a gated MLP without limits, offsets and biases, and cannot be combined with --mtp-num-layers")
	case m.ParallelMLP && (m.Experts == nil || !m.NormSandwich || m.Normalization != spec.RMSNorm || m.NormOnePlus || m.LinearBias || m.MTP != nil):
		return bad("--moe-parallel-mlp needs --num-experts, --norm-sandwich, --disable-bias-linear and --normalization RMSNorm, and cannot be combined with --apply-layernorm-1p or --mtp-num-layers")
	// Other pairs that exclude each other.
	case m.QueryGrowthAll && m.QKNormAfterRope:
		return bad("--query-growth-everywhere cannot be combined with --qk-layernorm-after-rope, which would undo the growth; leave one out")
	case m.ValueNorm && m.Latent != nil:
		return bad("--v-layernorm cannot be combined with --multi-latent-attention; leave --v-layernorm out")
	case m.Full != nil && (m.Latent != nil || m.QKNormFull || m.Windowed == nil || m.Position != spec.PositionRope):
		return bad("--full-attention-kv-channels and --full-attention-query-groups need --position-embedding-type rope and --window-attn-skip-freq, and cannot be combined with --multi-latent-attention or --qk-layernorm-whole")
	case m.Full != nil && (m.Full.KVChannels < 2 || m.Full.KVChannels%2 != 0 || m.Full.NumQueryGroups < 1 || m.NumAttentionHeads%m.Full.NumQueryGroups != 0):
		return bad("layers without a window cannot have %d query groups and heads of %d channels with %d attention heads; the number of channels must be even, and the number of groups must divide the number of heads", m.Full.NumQueryGroups, m.Full.KVChannels, m.NumAttentionHeads)
	}
	// Rules of frequencies that do not parse.
	for _, text := range []string{m.RopeRule, m.WindowRope} {
		if text == "" {
			continue
		}
		if _, err := spec.ParseRopeRule(text, m.RotaryDims()); err != nil {
			return bad("--rope-parameters %s: %w", text, err)
		}
	}
	return nil
}
