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
	if r.GroupQueryAttention {
		p.clash("multi-latent-attention group-query-attention", "--multi-latent-attention gives every query head its own keys and values; leave out --group-query-attention")
	}
	if m.QKNormWhole {
		p.clash("multi-latent-attention qk-layernorm-whole", "--multi-latent-attention has norms of its latents only; leave out --qk-layernorm-whole")
	}
	if m.Position != spec.PositionRope && !r.UseRotary {
		p.clash("multi-latent-attention position-embedding-type", "--multi-latent-attention rotates a part of each head; give --position-embedding-type rope")
	}
	if r.RopeScaling {
		p.clash("multi-latent-attention use-rope-scaling", "--use-rope-scaling has no effect with --multi-latent-attention; use --rope-type yarn with --rotary-scaling-factor")
	}
	if l.RopeDim%2 != 0 {
		p.clash("qk-pos-emb-head-dim", "--qk-pos-emb-head-dim %d: channels rotate in pairs; use an even number", l.RopeDim)
	}
	if m.RotaryPercent != 1 {
		p.clash("multi-latent-attention rotary-percent", "--multi-latent-attention rotates --qk-pos-emb-head-dim %d channels; leave out --rotary-percent", l.RopeDim)
	}
	if p.given("kv-channels") && m.KVChannels != l.Channels() {
		p.notice("--kv-channels %d has no effect with --multi-latent-attention: widths are --qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim", m.KVChannels)
	}
	m.KVChannels = l.Channels()
	m.Latent = &l
}
