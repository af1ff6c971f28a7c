package arguments

import (
	"cmp"
	"math"

	"monotron/internal/elementary"
	"monotron/megatron/optimizer"
)

// muP is the flags of muP (Yang et al., arXiv 2203.03466), by Megatron's rules.
type muP struct {
	On                bool
	BaseHidden        int
	Embedding, Output float64
	BaseHead, Power   float64
}

// deriveMuP scales the model's settings by its width. Learning rates are the optimizer's
// part (Config.WidthMult).
func (p *parser) deriveMuP() {
	m, mup := &p.Model, &p.Raw.MuP
	if !mup.On || m.HiddenSize < 1 || m.KVChannels < 1 {
		return
	}
	// What the rules are not known for, or would be set twice.
	if p.Optimizer.Kind != optimizer.Adam && p.Optimizer.Kind != optimizer.SGD {
		p.clash("use-mup optimizer", "--use-mup needs --optimizer adam or sgd, not %s", p.Optimizer.Kind)
	}
	if m.Latent != nil || m.KeepsState() || m.Full != nil {
		p.clash("use-mup multi-latent-attention experimental-attention-variant short-conv-freq mamba-layer-freq full-attention-kv-channels", "--use-mup cannot be combined with multi-latent attention, gated delta nets, short convolutions, state-space scans or --full-attention-kv-channels; leave --use-mup out")
	}
	if p.given("softmax-scale") || p.given("embedding-multiplier") || p.given("logit-multiplier") {
		p.clash("use-mup softmax-scale embedding-multiplier logit-multiplier", "--use-mup cannot be combined with --softmax-scale, --embedding-multiplier or --logit-multiplier, because --use-mup sets these; leave them out, or give --mup-embedding-mult and --mup-output-mult")
	}
	if mup.BaseHidden < 1 {
		p.clash("use-mup mup-base-hidden-size", "--use-mup needs --mup-base-hidden-size, the width at which --lr was found")
		return
	}
	// Initial values, scores, embeddings and logits.
	width := float64(m.HiddenSize) / float64(mup.BaseHidden)
	p.Optimizer.WidthMult = width
	m.InitStd /= math.Sqrt(width)
	m.SoftmaxScale = math.Sqrt(cmp.Or(mup.BaseHead, 1)) / elementary.Pow(float64(m.KVChannels), mup.Power)
	if m.LogitScale = mup.Output; mup.Output == 1 {
		m.LogitScale = 1 / width
	}
	m.EmbeddingScale, m.LogitScale = unlessOne(mup.Embedding), unlessOne(m.LogitScale)
}

// unlessOne is x, 0 for 1: the model without it.
func unlessOne(x float64) float64 {
	if x == 1 {
		return 0
	}
	return x
}
