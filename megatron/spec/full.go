package spec

import "slices"

// FullAttention is what layers without a window have other than those with one (Gemma 4): width of
// a head, and how many groups of queries share keys.
type FullAttention struct {
	KVChannels     int
	NumQueryGroups int
}

// queriesAlone is KVShared of an attention that makes no keys and values.
const queriesAlone = -1

// AttentionOf is the model as the attention of a layer (0-based, global) takes it: widths and groups
// are the layer's, and KVShared reports whether it makes keys and values (see KeyValues).
func (m *Model) AttentionOf(layer int) *Model {
	if m.Full == nil && m.KVShared <= 0 {
		return m
	}
	of := *m
	if of.KVShared = 0; m.KeysFrom(layer) != layer {
		of.KVShared = queriesAlone
	}
	switch of.Full = nil; {
	case m.Full == nil:
	case m.WindowedAt(layer):
		of.KeysAreValues = false
	default:
		of.KVChannels, of.NumQueryGroups = m.Full.KVChannels, m.Full.NumQueryGroups
	}
	return &of
}

// KeysFrom is the layer (0-based, global) whose keys and values a layer's attention reads: its own, or in the
// last KVShared layers those of the last layer before them that has a window, or has none, as it; −1: there is none.
func (m *Model) KeysFrom(layer int) int {
	first := m.NumLayers - m.KVShared
	if m.KVShared <= 0 || layer < first || layer >= m.NumLayers {
		return layer
	}
	for i := range slices.Backward(make([]struct{}, first)) {
		if m.WindowedAt(i) == m.WindowedAt(layer) {
			return i
		}
	}
	return -1
}

// LendsKeys reports whether later layers read a layer's keys and values.
func (m *Model) LendsKeys(layer int) bool {
	for i := max(layer+1, m.NumLayers-m.KVShared); i < m.NumLayers; i++ {
		if m.KeysFrom(i) == layer {
			return true
		}
	}
	return false
}

// MLPOf is the model as the MLP of a layer (0-based, global) takes it: with WideShared those of the last KVShared
// layers are twice as wide.
func (m *Model) MLPOf(layer int) *Model {
	if !m.WideShared || m.KeysFrom(layer) == layer {
		return m
	}
	of := *m
	of.FFNHiddenSize *= 2
	return &of
}

// LayersDiffer reports parts that Gemma 4 alone has: layers that differ in heads or share keys, that are scaled,
// have embeddings of their own, or an MLP in parallel with a mixture.
func (m *Model) LayersDiffer() bool {
	return m.Full != nil || m.KeysAreValues || m.LayerScalar || m.KVShared > 0 || m.PerLayerInput > 0 || m.ParallelMLP
}

// OneStage says why a model's layers must all be on one pipeline stage; "": they need not.
func (m *Model) OneStage() string {
	switch {
	case m.PerLayerInput > 0:
		return "--per-layer-input-size: every layer reads the embeddings of the first stage"
	case m.KVShared > 0:
		return "--kv-shared-layers: the last layers read keys and values of earlier layers"
	}
	return ""
}

// FewestGroups is the smallest number of query groups that a layer has.
func (m *Model) FewestGroups() int {
	if m.Full == nil {
		return m.NumQueryGroups
	}
	return min(m.NumQueryGroups, m.Full.NumQueryGroups)
}

// AllHaveKeys reports whether KeysFrom finds a layer for every one.
func (m *Model) AllHaveKeys() bool {
	for i := range m.NumLayers {
		if m.KeysFrom(i) < 0 {
			return false
		}
	}
	return true
}
