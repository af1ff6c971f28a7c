package spec

// GatedDeltaNet is the kind of linear attention there is (--experimental-attention-variant).
const GatedDeltaNet = "gated_delta_net"

// MostTaps is the longest convolution that kernels have.
const MostTaps = 16

// Delta describes layers with a gated delta net (arXiv 2412.06464) in place of attention: a causal
// convolution of queries, keys and values, and of every value head a state of KeyDim rows and
// ValueDim columns that positions read and change one after the other. A layer's cost is linear in
// the number of positions.
type Delta struct {
	KeyHeads   int    // of queries and of keys
	ValueHeads int    // neighbours share a key head
	KeyDim     int    // channels of a query and of a key head
	ValueDim   int    // channels of a value head
	Taps       int    // positions that the convolution sees
	Layers     []bool // [NumLayers], true where the layer has one
}

// DeltaAt reports whether layer (0-based, global) has a gated delta net in place of attention.
func (m *Model) DeltaAt(layer int) bool {
	return m.Delta != nil && m.Delta.Layers[m.decoderLayer(layer)]
}

// Parts is how many rows of a layer's input projection each part has: queries, keys, values,
// the gate of the output, and of every value head what its writing and its decay come from.
func (d *Delta) Parts() [6]int {
	k, v := d.KeyHeads*d.KeyDim, d.ValueHeads*d.ValueDim
	return [6]int{k, k, v, v, d.ValueHeads, d.ValueHeads}
}

// Rows is the number of rows of the input projection.
func (d *Delta) Rows() (n int) {
	for _, rows := range d.Parts() {
		n += rows
	}
	return n
}

// Channels is how many channels the convolution has: those of queries, keys and values.
func (d *Delta) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim }

// parameters counts the weights of one layer's net.
func (d *Delta) parameters(m *Model) int64 {
	h := int64(m.HiddenSize)
	n := int64(d.Rows())*h + int64(d.Channels()*d.Taps) + int64(2*d.ValueHeads) + int64(d.ValueDim) + int64(d.ValueHeads*d.ValueDim)*h
	if m.LinearBias {
		n += h
	}
	return n
}

// operations are the products of one layer's net for a token, as Megatron counts them: projections,
// convolution, and four of the size of the state.
func (d *Delta) operations(m *Model) float64 {
	h, state := float64(m.HiddenSize), float64(d.ValueHeads*d.KeyDim*d.ValueDim)
	return h*float64(d.Rows()) + float64(d.Channels()*d.Taps) + 4*state + float64(d.ValueHeads*d.ValueDim)*h
}
