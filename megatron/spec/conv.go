package spec

// ShortConv describes layers with a short convolution in place of attention (LFM2): of three
// projections B, C and u of a layer's input, each as wide as it, the output is
// out(C ⊙ conv(B ⊙ u)), the convolution one of each channel by itself over the last positions.
type ShortConv struct {
	Taps   int    // positions that the convolution sees
	Layers []bool // [NumLayers], true where the layer has one
}

// ConvAt reports whether layer (0-based, global) has a short convolution in place of attention.
func (m *Model) ConvAt(layer int) bool {
	return m.Conv != nil && m.Conv.Layers[m.decoderLayer(layer)]
}

// AttendsAt reports whether layer (0-based, global) has attention.
func (m *Model) AttendsAt(layer int) bool {
	return m.MixerAt(layer) && !m.DeltaAt(layer) && !m.ConvAt(layer) && !m.MambaAt(layer)
}

// KeepsState reports whether layers of the model have a state that positions change one after the
// other, in place of keys.
func (m *Model) KeepsState() bool { return m.Delta != nil || m.Conv != nil || m.Mamba != nil }

// parameters counts the weights of one layer's convolution with its projections.
func (c *ShortConv) parameters(m *Model) int64 {
	h := int64(m.HiddenSize)
	return 4*h*h + h*int64(c.Taps)
}

// operations are the products of one layer for a token.
func (c *ShortConv) operations(m *Model) float64 {
	h := float64(m.HiddenSize)
	return 4*h*h + h*float64(c.Taps)
}
