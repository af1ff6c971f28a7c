package arguments

import "monotron/megatron/spec"

// deriveLatent completes multi-latent attention, where it is asked for.
func (p *parser) deriveLatent() {
	m, r := &p.Model, &p.Raw
	if !r.MultiLatent {
		return
	}
	l := r.Latent
	l.Norms, m.QKNorm = m.QKNorm, false // of the latents, not of heads
	l.Yarn = r.RopeType != "rope"
	l.OriginalMax, l.FastTurns, l.SlowTurns = spec.YarnOriginalMax, spec.YarnFastTurns, spec.YarnSlowTurns
	if m.RopeRule != "" {
		p.latentRule(&l)
	}
	if r.GroupQueryAttention {
		p.clash("multi-latent-attention group-query-attention", "--multi-latent-attention cannot be combined with --group-query-attention: every query head has its own keys and values; leave --group-query-attention out")
	}
	if m.QKNormFull {
		p.clash("multi-latent-attention qk-layernorm-whole", "--multi-latent-attention cannot be combined with --qk-layernorm-whole, because latent attention normalizes the latent vectors; leave --qk-layernorm-whole out")
	}
	if m.Position != spec.PositionRope && !r.UseRotary {
		p.clash("multi-latent-attention position-embedding-type", "--multi-latent-attention needs --position-embedding-type rope")
	}
	if r.RopeScaling {
		p.clash("multi-latent-attention use-rope-scaling", "--multi-latent-attention cannot be combined with --use-rope-scaling; use --rope-type yarn with --rotary-scaling-factor")
	}
	if l.RopeDim%2 != 0 {
		p.clash("qk-pos-emb-head-dim", "--qk-pos-emb-head-dim must be even, not %d, because channels rotate in pairs", l.RopeDim)
	}
	if m.RotaryPercent != 1 {
		p.clash("multi-latent-attention rotary-percent", "--multi-latent-attention cannot be combined with --rotary-percent: latent attention rotates the %d channels of --qk-pos-emb-head-dim; leave --rotary-percent out", l.RopeDim)
	}
	if p.given("kv-channels") && m.KVChannels != l.Channels() {
		p.notice("--kv-channels %d has no effect with --multi-latent-attention: the widths of heads are --qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim", m.KVChannels)
	}
	m.KVChannels = l.Channels()
	m.Latent = &l
}

// latentRule takes YaRN's settings from --rope-parameters: Megatron-LM has flags for some only.
func (p *parser) latentRule(l *spec.Latent) {
	r, err := spec.ParseRopeRule(p.Model.RopeRule, l.RopeDim)
	switch {
	case err != nil:
		p.clash("rope-parameters", "--rope-parameters %s: %v", p.Model.RopeRule, err)
	case !l.Yarn || r.Type != spec.RopeYarn || r.Theta != 0 || r.AttentionFactor != nil || r.Truncate != nil || r.MScale != nil || r.MScaleAllDim != nil:
		p.clash("rope-parameters multi-latent-attention", "with --multi-latent-attention, --rope-parameters needs --rope-type yarn and accepts only rope_type yarn, factor, original_max_position_embeddings, beta_fast and beta_slow; use --rotary-base, --mscale and --mscale-all-dim for the other parameters")
	default:
		l.Factor, l.OriginalMax = *r.Factor, r.OriginalMax
		if r.BetaFast != nil {
			l.FastTurns = *r.BetaFast
		}
		if r.BetaSlow != nil {
			l.SlowTurns = *r.BetaSlow
		}
	}
	p.Model.RopeRule = ""
}
