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
			return bad("--attention-softcap: the attention kernels of --device cuda have no cap; use --device cpu")
		case m.AlibiTable:
			return bad("--alibi-by-key: the attention kernels of --device cuda add slopes only; use --device cpu")
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
				return bad("--%s is not supported with --multi-latent-attention; leave it out", part.flag)
			}
		}
	}
	switch {
	// Combinations of Gemma 4, whose layers are written for its own settings only.
	case m.KeysAreValues && (!m.QKNorm || !m.ValueNorm || m.QKNormWhole || m.QKNormAfterRope || m.Latent != nil):
		return bad("--keys-are-values needs --qk-layernorm of each head, before it rotates, and --v-layernorm")
	case m.KVShared > 0 && (m.KVShared >= m.NumLayers || !m.QKNorm || m.QKNormWhole || m.QKNormAfterRope || !m.ValueNorm || m.OutputGate || m.QKVBias || m.Latent != nil || m.KeepsState()):
		return bad("--kv-shared-layers %d of %d layers: it needs fewer than all, --qk-layernorm of each head before it rotates and --v-layernorm, without biases of QKV and --attention-output-gate", m.KVShared, m.NumLayers)
	case m.KVShared > 0 && !m.AllHaveKeys():
		return bad("--kv-shared-layers %d: some of these layers have a window and no layer before them has, or the other way round; make it smaller", m.KVShared)
	case m.WideShared && m.KVShared == 0:
		return bad("--double-wide-mlp needs --kv-shared-layers")
	case m.PerLayerInput > 0 && (!m.Gated() || m.MTP != nil || m.GateLimit != 0 || m.GateOffset != 0 || m.LinearBias):
		return bad("--per-layer-input-size needs a gated MLP without limits, offsets and biases, and no --mtp-num-layers")
	case m.ParallelMLP && (m.Experts == nil || !m.NormSandwich || m.Normalization != spec.RMSNorm || m.NormOnePlus || m.LinearBias || m.MTP != nil):
		return bad("--moe-parallel-mlp needs --num-experts, --norm-sandwich and RMSNorm of plain weights, without biases and --mtp-num-layers")
	// Other pairs that exclude each other.
	case m.QueryGrowthAll && m.QKNormAfterRope:
		return bad("--query-growth-everywhere: --qk-layernorm-after-rope would undo it; leave one out")
	case m.ValueNorm && m.Latent != nil:
		return bad("--v-layernorm is not supported with --multi-latent-attention; leave it out")
	case m.Full != nil && (m.Latent != nil || m.QKNormWhole || m.Windowed == nil || m.Position != spec.PositionRope):
		return bad("--full-attention-kv-channels and --full-attention-query-groups need RoPE and --window-attn-skip-freq, without --multi-latent-attention and --qk-layernorm-whole")
	case m.Full != nil && (m.Full.KVChannels < 2 || m.Full.KVChannels%2 != 0 || m.Full.NumQueryGroups < 1 || m.NumAttentionHeads%m.Full.NumQueryGroups != 0):
		return bad("layers without a window with %d query groups and heads of %d channels do not fit %d attention heads; channels must be even, and groups a divisor of the heads", m.Full.NumQueryGroups, m.Full.KVChannels, m.NumAttentionHeads)
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
