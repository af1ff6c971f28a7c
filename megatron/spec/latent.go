package spec

import "math"

// Latent describes multi-latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of
// all heads are made from one narrow row a token, its latent, and one rotary key that all heads
// share; queries from a latent of their own, or from the layer's input.
type Latent struct {
	QRank   int // width of the queries' latent; 0: queries come from the layer's input
	KVRank  int // width of the latent of keys and values
	QKDim   int // channels of a query and of a key that do not rotate
	RopeDim int // channels that do: pairs (2i, 2i+1)
	VDim    int // channels of a value
	Norms   bool

	Yarn         bool    // --rope-type yarn, else plain
	Factor       float64 // --rotary-scaling-factor
	MScale       float64
	MScaleAllDim float64
	OriginalMax  int     // positions that YaRN stretches (arXiv 2309.00071)
	FastTurns    float64 // of a pair over them, from which on its frequency stays: beta_fast
	SlowTurns    float64 // up to which it is divided by the factor: beta_slow
}

// YaRN's settings that Megatron-LM has no flag for with latent attention.
const (
	YarnOriginalMax = 4096
	YarnFastTurns   = 32
	YarnSlowTurns   = 1
)

// HeadDim is the channels of a query or key.
func (l *Latent) HeadDim() int { return l.QKDim + l.RopeDim }

// Channels is the width of a head in the middle of attention, where queries, keys and values
// have one width: the narrower ones are filled up with zeros.
func (l *Latent) Channels() int { return max(l.HeadDim(), l.VDim) }

// scoreScale is what queries times keys are multiplied by: with either kind of RoPE, as in
// Megatron-LM.
func (l *Latent) scoreScale() float64 {
	f := yarnMagnitude(l.Factor, l.MScaleAllDim)
	return f * f / math.Sqrt(float64(l.HeadDim()))
}

// tableFactor multiplies cosines and sines.
func (l *Latent) tableFactor() float64 {
	if !l.Yarn {
		return 1
	}
	return yarnMagnitude(l.Factor, l.MScale) / yarnMagnitude(l.Factor, l.MScaleAllDim)
}

// frequencies are those of RopeDim/2 pairs; under YaRN slow ones are divided by the factor.
func (l *Latent) frequencies(base float64) []float64 {
	if !l.Yarn {
		return plainFrequencies(base, l.RopeDim)
	}
	return l.Rule().yarn(base, l.RopeDim)
}

// Rule is YaRN as a rule of frequencies, which leaves out MScale and MScaleAllDim.
func (l *Latent) Rule() *RopeRule {
	return &RopeRule{Type: RopeYarn, Factor: &l.Factor, OriginalMax: l.OriginalMax, BetaFast: &l.FastTurns, BetaSlow: &l.SlowTurns}
}

// OwnRamp reports whether YaRN has settings for which Megatron-LM has no flag.
func (l *Latent) OwnRamp() bool {
	return l.Yarn && (l.OriginalMax != YarnOriginalMax || l.FastTurns != YarnFastTurns || l.SlowTurns != YarnSlowTurns)
}

// operations are the products of one layer's attention for one token of a sequence of seq
// tokens, by Megatron's formula: projections, and the causal half of scores and values.
func (l *Latent) operations(m *Model, seq float64) float64 {
	h, heads, dim := float64(m.HiddenSize), float64(m.NumAttentionHeads), float64(l.HeadDim())
	q := h * heads * dim
	if l.QRank > 0 {
		q = float64(l.QRank) * (h + heads*dim + 1)
	}
	kv := float64(l.KVRank)*(h+heads*float64(l.QKDim+l.VDim)+1) + h*float64(l.RopeDim)
	return q + kv + heads*float64(l.VDim)*h + seq*heads*(dim+float64(l.VDim))/2
}

// parameters counts the weights of one layer's attention.
func (l *Latent) parameters(m *Model) int64 {
	h, heads := int64(m.HiddenSize), int64(m.NumAttentionHeads)
	q := heads * int64(l.HeadDim())
	n := h*q + h*int64(l.KVRank+l.RopeDim) + int64(l.KVRank)*heads*int64(l.QKDim+l.VDim) + heads*int64(l.VDim)*h
	if l.QRank > 0 {
		n += int64(l.QRank)*(h+q) - h*q
	}
	if l.Norms {
		n += m.normParameters(l.KVRank)
		if l.QRank > 0 {
			n += m.normParameters(l.QRank)
		}
	}
	if m.LinearBias {
		n += h
	}
	return n
}
