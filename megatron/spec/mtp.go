package spec

import "fmt"

// MTP describes multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): depth d
// predicts from the state of depth d-1 and the embedding of the token d positions ahead the token
// after that. Depth 0 is the decoder. Each depth has a layer like the decoder's last.
type MTP struct {
	Depths      int     // --mtp-num-layers
	LossScale   float64 // --mtp-loss-scaling-factor: the depths' losses together count so much
	Repeated    bool    // --mtp-use-repeated-layer: one layer is that of all depths
	DetachHeads bool    // --mtp-detach-heads: nothing outside the layers learns from these losses
}

// MTPLayers is how many layers of multi-token prediction the model has; they count after the
// decoder's.
func (m *Model) MTPLayers() int {
	switch {
	case m.MTP == nil:
		return 0
	case m.MTP.Repeated:
		return 1
	}
	return m.MTP.Depths
}

// AllLayers is how many layers the model has, those of multi-token prediction included.
func (m *Model) AllLayers() int { return m.NumLayers + m.MTPLayers() }

// Uses is how often a micro-batch passes through a layer (0-based, global).
func (m *Model) Uses(layer int) int {
	if layer >= m.NumLayers && m.MTP.Repeated {
		return m.MTP.Depths
	}
	return 1
}

// LayerName is what the tensors of a layer (0-based, global) begin with, as Megatron's
// modules are called.
func (m *Model) LayerName(layer int) string {
	if layer < m.NumLayers {
		return fmt.Sprintf("decoder.layers.%d", layer)
	}
	return MTPName(layer-m.NumLayers) + ".mtp_model_layer"
}

// MTPName is the prefix of a layer of multi-token prediction, counted from 0.
func MTPName(i int) string { return fmt.Sprintf("mtp.layers.%d", i) }

// decoderLayer is the layer of the decoder that a layer (0-based, global) is like.
func (m *Model) decoderLayer(layer int) int { return min(layer, m.NumLayers-1) }

// MTPParameters counts the i-th layer of multi-token prediction: a layer, three norms and the
// projection of embedding and state.
func (m *Model) MTPParameters(i int) int64 {
	h := int64(m.HiddenSize)
	return m.LayerParameters(m.NumLayers+i) + 3*m.normParameters(m.HiddenSize) + 2*h*h
}
