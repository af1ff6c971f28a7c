package arguments

import (
	"monotron/megatron/spec"
)

// deriveParts checks settings that only some families have: which need another flag, and which
// cannot be combined.
func (p *parser) deriveParts() {
	m := &p.Model
	m.Sinks = p.Raw.SoftmaxType == "learnable"
	// Norms: at most one deviation from the norm of a sublayer's input.
	ways := 0
	for _, on := range []bool{m.NormAfter, m.NormSandwich, m.NormBehindSum} {
		if on {
			ways++
		}
	}
	p.refuseIf(ways > 1, "norm-after norm-sandwich norm-behind-sum", "--norm-after, --norm-sandwich and --norm-behind-sum cannot be combined; give one")
	p.refuseIf(m.ParallelResidual && m.NormBehindSum, "norm-behind-sum parallel-residual", "--norm-behind-sum cannot be combined with --parallel-residual; leave one out")
	p.refuseIf(m.ParallelOneNorm && (!m.ParallelResidual || ways > 0), "parallel-one-norm parallel-residual", "--parallel-one-norm needs --parallel-residual, and cannot be combined with --norm-after, --norm-sandwich or --norm-behind-sum")
	p.refuseIf(m.QKNormAfterRope && !m.QKNorm, "qk-layernorm-after-rope qk-layernorm", "--qk-layernorm-after-rope needs --qk-layernorm")
	p.refuseIf(m.QKL2Norm && m.QKNorm, "qk-l2-norm qk-layernorm", "--qk-l2-norm cannot be combined with --qk-layernorm; leave one out")
	p.refuseIf(m.NormNoBias && m.Normalization != spec.LayerNorm, "norm-without-bias normalization", "--norm-without-bias needs --normalization LayerNorm")
	// Biases and gates of linear layers.
	p.refuseIf(m.ProjBias && m.LinearBias, "add-proj-bias disable-bias-linear", "--add-proj-bias needs --disable-bias-linear, because otherwise all linear layers have biases")
	p.refuseIf(m.NoProjBias && !m.LinearBias, "disable-proj-bias disable-bias-linear", "--disable-proj-bias cannot be combined with --disable-bias-linear, which already omits that bias; leave one out")
	p.refuseIf((m.GateLimit != 0 || m.GateOffset != 0) && !m.Gated(), "activation-func-clamp-value glu-linear-offset", "--activation-func-clamp-value and --glu-linear-offset need a gated MLP, such as --swiglu or --quick-geglu")
	// Positions.
	p.refuseIf(m.PositionOffset > 0 && m.Position != spec.PositionLearned, "position-offset position-embedding-type", "--position-offset needs --position-embedding-type learned_absolute")
	p.refuseIf(m.AlibiTable && m.Position != spec.PositionAlibi, "alibi-by-key position-embedding-type", "--alibi-by-key needs --position-embedding-type alibi")
	p.refuseIf((m.QueryGrowth != 0) != (m.QueryGrowthFrom != 0), "query-growth query-growth-from", "--query-growth and --query-growth-from need each other; give both")
	p.refuseIf(m.QueryGrowthAll && m.QueryGrowth == 0, "query-growth-everywhere query-growth", "--query-growth-everywhere needs --query-growth; give both")
	p.refuseIf(m.QueryGrowth != 0 && m.KVChannels%2 != 0, "query-growth kv-channels", "--query-growth needs an even --kv-channels, not %d", m.KVChannels)
	// Layers that read an earlier layer's keys and values, which must be on the same stage.
	p.refuseIf(m.WideShared && m.KVShared == 0, "double-wide-mlp kv-shared-layers", "--double-wide-mlp needs --kv-shared-layers")
	p.refuseIf(m.KVShared > 0 && m.KVShared >= m.NumLayers, "kv-shared-layers num-layers", "--kv-shared-layers must be below --num-layers %d, not %d", m.NumLayers, m.KVShared)
	if why := m.OneStage(); why != "" && p.Layout.PP > 1 {
		p.clash("pipeline-model-parallel-size kv-shared-layers per-layer-input-size", "%s needs all layers on one pipeline stage; use --pipeline-model-parallel-size 1", why)
	}
	p.deriveRopeRules()
}

// refuseIf reports flags that cannot be combined.
func (p *parser) refuseIf(wrong bool, flags, format string, args ...any) {
	if wrong {
		p.clash(flags, format, args...)
	}
}

// deriveRopeRules reads the rules of frequencies.
func (p *parser) deriveRopeRules() {
	m := &p.Model
	for _, rule := range []struct{ flag, text string }{{"rope-parameters", m.RopeRule}, {"window-rope-parameters", m.WindowRope}} {
		if rule.text == "" {
			continue
		}
		p.refuseIf(m.Position != spec.PositionRope, rule.flag+" position-embedding-type", "--%s needs --position-embedding-type rope", rule.flag)
		if _, err := spec.ParseRopeRule(rule.text, m.RotaryDims()); err != nil {
			p.clash(rule.flag, "--%s %s: %v", rule.flag, rule.text, err)
		}
	}
	p.refuseIf(m.RopeRule != "" && (m.RopeScaling != nil || m.RotaryInterpolation > 1), "rope-parameters use-rope-scaling rotary-seq-len-interpolation-factor",
		"--rope-parameters cannot be combined with --use-rope-scaling or --rotary-seq-len-interpolation-factor; write the scaling in --rope-parameters")
	m.TakeRopeRule()
}
