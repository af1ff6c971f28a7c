package spec

// PadVocab is the number of embedding rows for a tokenizer of size ids: the
// next multiple of divisor*tp (--make-vocab-size-divisible-by), so that every
// tensor-parallel rank holds the same number of rows.
func PadVocab(size, divisor, tp int) int {
	step := max(1, divisor) * max(1, tp)
	return (size + step - 1) / step * step
}

// Parameters counts the model's parameters by formula, padded vocabulary rows
// included, a tied output layer once.
func (m *Model) Parameters() int64 {
	n := int64(m.PaddedVocabSize)*int64(m.HiddenSize) + int64(m.PositionRows())*int64(m.HiddenSize)
	if !m.NormBehindSum {
		n += m.normParameters(m.HiddenSize)
	}
	if m.EmbedNorm {
		n += 2 * int64(m.HiddenSize)
	}
	if !m.Tied {
		n += int64(m.PaddedVocabSize) * int64(m.HiddenSize)
	}
	if l := int64(m.PerLayerInput); l > 0 { // table, projection and norm of all layers' inputs
		n += l*int64(m.NumLayers)*int64(m.PaddedVocabSize+m.HiddenSize) + m.normParameters(m.PerLayerInput)
	}
	for layer := range m.NumLayers {
		n += m.LayerParameters(layer)
	}
	for i := range m.MTPLayers() {
		n += m.MTPParameters(i)
	}
	return n
}

// LayerParameters counts one layer (0-based, global): of each sublayer that it has, norms and attention, MLP or
// experts.
func (m *Model) LayerParameters(layer int) int64 {
	n := int64(m.layerNorms(layer)) * m.normParameters(m.HiddenSize)
	if m.MixerAt(layer) {
		n += m.mixerParameters(layer)
	}
	if m.LayerScalar {
		n++
	}
	h := int64(m.HiddenSize)
	if m.PerLayerInput > 0 { // gate, projection, norm
		n += 2*h*int64(m.PerLayerInput) + m.normParameters(m.HiddenSize)
	}
	switch {
	case !m.MLPAt(layer):
		return n
	case !m.MixtureAt(layer):
		return n + m.mlpParameters(m.MLPOf(layer).FFNHiddenSize)
	}
	e := m.Experts
	if m.ParallelMLP { // the MLP, four norms of which the router's is one, a factor an expert
		n += m.mlpParameters(m.MLPOf(layer).FFNHiddenSize) + 4*h + int64(e.Num)
	}
	n += int64(e.Num)*h + int64(e.Num)*m.expertParameters() + 2*h*int64(e.LatentSize) // the router, experts, projections around them
	if m.LinearBias {
		n += int64(e.Num) // the router's bias
	}
	if e.SharedFFN > 0 {
		n += m.mlpParameters(e.SharedFFN)
		if e.SharedGate {
			n += h
		}
	}
	return n
}

// layerNorms counts the norms of the residual stream's width in a layer.
func (m *Model) layerNorms(layer int) int {
	norms := 2
	switch {
	case m.NormSandwich:
		norms = 4
	case m.ParallelOneNorm:
		norms = 1
	}
	if m.MixerAt(layer) && m.MLPAt(layer) {
		return norms
	}
	return norms / 2
}

func (m *Model) normParameters(width int) int64 {
	if m.HasNormBias() {
		return 2 * int64(width)
	}
	return int64(width)
}

// mixerParameters counts what a layer has in which positions see each other.
func (m *Model) mixerParameters(layer int) int64 {
	switch {
	case m.DeltaAt(layer):
		return m.Delta.parameters(m)
	case m.ConvAt(layer):
		return m.Conv.parameters(m)
	case m.MambaAt(layer):
		return m.Mamba.parameters(m)
	}
	return m.AttentionOf(layer).attentionParameters()
}

func (m *Model) attentionParameters() int64 {
	if m.Latent != nil {
		return m.Latent.parameters(m)
	}
	h, q := int64(m.HiddenSize), int64(m.NumAttentionHeads*m.KVChannels)
	n := int64(m.QKVRows())*h + h*q
	if m.QKVBias {
		n += int64(m.QKVRows())
	}
	if m.HasProjBias() {
		n += h
	}
	if m.Sinks {
		n += int64(m.NumAttentionHeads)
	}
	if m.QKNorm {
		q, k := m.QKNormWidths()
		if n += m.normParameters(q); m.KeyValues() > 0 {
			n += m.normParameters(k)
		}
	}
	return n
}

// mlpParameters counts an MLP of intermediate width ffn.
func (m *Model) mlpParameters(ffn int) int64 {
	h, in := int64(m.HiddenSize), int64(ffn)
	if m.Gated() {
		in *= 2
	}
	n := in*h + h*int64(ffn)
	if m.LinearBias {
		n += in + h
	}
	return n
}

// FLOPs counts the floating point operations of one training step over batch
// sequences of seq tokens each, forward and backward, by Megatron's formula
// (megatron/training/training.py, num_floating_point_operations):
//
//	6*tokens*(sum over layers of (h*(2q+2kv) + h*F) + h*V) + 6*batch*seq^2*q*L
//
// q and kv are the widths of all query and of all key heads, F is 2 (gated: 3) times the intermediate width a
// token passes through, V the padded vocabulary. With latent attention the terms of attention are
// Latent.operations, with a gated delta net Delta.operations, with a short convolution ShortConv.operations,
// with a state-space scan Mamba.operations.
// The attention term counts the causal half only. Every depth of multi-token prediction counts as a layer
// more, its three norms and projection (3h + 2h^2) and the logits again. Recomputation, other norms, softmax
// and the optimizer are not counted.
func (m *Model) FLOPs(batch, seq int) float64 {
	h, matrices := float64(m.HiddenSize), 2.0
	if m.Gated() {
		matrices = 3
	}
	passes, depths := m.NumLayers, 0.0 // layers that a token passes through
	if m.MTP != nil {
		passes, depths = passes+m.MTP.Depths, float64(m.MTP.Depths)
	}
	perToken := h*float64(m.PaddedVocabSize)*(1+depths) + depths*(3*h+2*h*h)
	for layer := range passes {
		if m.MixerAt(layer) {
			perToken += m.mixerOperations(layer, float64(seq))
		}
		if !m.MLPAt(layer) {
			continue
		}
		width := float64(m.MLPOf(layer).FFNHiddenSize)
		if m.MixtureAt(layer) {
			dense := 0.0
			if m.ParallelMLP {
				dense = width
			}
			width = float64(m.Experts.FFNHiddenSize*m.Experts.TopK)*float64(m.ExpertWidth())/h + float64(m.Experts.SharedFFN) + dense
			perToken += 2 * h * float64(m.Experts.LatentSize)
		}
		perToken += h*width*matrices + 3*h*float64(m.PerLayerInput) // the projection for the layer, gate and projection in it
	}
	return 6 * float64(batch) * float64(seq) * perToken
}

// mixerOperations are the products of a layer's attention, or of the mixer that replaces it, for one
// token of a sequence of seq tokens.
func (m *Model) mixerOperations(layer int, seq float64) float64 {
	switch {
	case m.DeltaAt(layer):
		return m.Delta.operations(m)
	case m.ConvAt(layer):
		return m.Conv.operations(m)
	case m.MambaAt(layer):
		return m.Mamba.operations(m)
	case m.Latent != nil:
		return m.Latent.operations(m, seq)
	}
	m = m.AttentionOf(layer)
	q := float64(m.NumAttentionHeads * m.KVChannels)
	return float64(m.HiddenSize)*(float64(m.QKVRows())+q) + seq*q
}
