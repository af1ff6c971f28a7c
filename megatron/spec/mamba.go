package spec

import "fmt"

// Mamba describes layers with a state-space scan in place of attention (Mamba-2, arXiv 2405.21060): a
// causal convolution of x, B and C, and of every head a state of StateDim rows and HeadDim columns
// that positions read and change one after the other. A layer's cost is linear in the number of
// positions.
type Mamba struct {
	Heads    int // of x
	Groups   int // of B and C; neighbouring heads share one. The output's norm is of as many groups of channels
	HeadDim  int // channels of a head
	StateDim int // channels of a B and of a C
	Taps     int // positions that the convolution sees
	ConvBias bool
	// Limits of the time step; DtMax 0: no upper one.
	DtMin, DtMax float64
	Layers       []bool // [NumLayers], true where the layer has one
}

// MambaAt reports whether layer (0-based, global) has a state-space scan in place of attention.
func (m *Model) MambaAt(layer int) bool {
	return m.Mamba != nil && m.Mamba.Layers[m.decoderLayer(layer)]
}

// Inner is how many channels all heads have.
func (s *Mamba) Inner() int { return s.Heads * s.HeadDim }

// Parts is how many rows of a layer's input projection each part has: the gate of the output, x, B, C, and
// the time step of every head.
func (s *Mamba) Parts() [5]int {
	return [5]int{s.Inner(), s.Inner(), s.Groups * s.StateDim, s.Groups * s.StateDim, s.Heads}
}

// Rows is the number of rows of the input projection.
func (s *Mamba) Rows() (n int) {
	for _, rows := range s.Parts() {
		n += rows
	}
	return n
}

// Channels is how many channels the convolution has: those of x, B and C.
func (s *Mamba) Channels() int { return s.Inner() + 2*s.Groups*s.StateDim }

// Uncut is the reason why tp tensor-parallel and cp context-parallel ranks cannot share a layer; "": they can.
func (s *Mamba) Uncut(tp, cp int) string {
	switch here := max(1, s.Groups/tp); { // groups of a tensor-parallel rank
	case s.Heads%s.Groups != 0:
		return fmt.Sprintf("--mamba-num-heads %d is not a multiple of --mamba-num-groups %d", s.Heads, s.Groups)
	case s.Heads%(tp*cp) != 0:
		return fmt.Sprintf("--mamba-num-heads %d must be a multiple of --tensor-model-parallel-size %d x --context-parallel-size %d; use other sizes", s.Heads, tp, cp)
	case s.Groups > 1 && s.Groups%tp != 0:
		return fmt.Sprintf("--mamba-num-groups %d must be a multiple of --tensor-model-parallel-size %d, or be 1; use another number", s.Groups, tp)
	case here > 1 && here%cp != 0:
		return fmt.Sprintf("--mamba-num-groups %d: --context-parallel-size %d must divide the %d groups of a tensor-parallel rank; use another size", s.Groups, cp, here)
	}
	return ""
}

// parameters counts the weights of one layer's scan with its projections.
func (s *Mamba) parameters(m *Model) int64 {
	h := int64(m.HiddenSize)
	n := int64(s.Rows())*h + int64(s.Channels()*s.Taps) + int64(3*s.Heads) + int64(s.Inner()) + int64(s.Inner())*h
	if s.ConvBias {
		n += int64(s.Channels())
	}
	return n
}

// operations are the products of one layer for a token: projections, convolution, and two of the size of the
// state, by which it is written and read.
func (s *Mamba) operations(m *Model) float64 {
	h, state := float64(m.HiddenSize), float64(s.Inner()*s.StateDim)
	return h*float64(s.Rows()) + float64(s.Channels()*s.Taps) + 2*state + float64(s.Inner())*h
}
