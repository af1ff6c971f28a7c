package spec

// FullAttention is what layers without a window have other than those with one (Gemma 4): width of
// a head, and how many groups of queries share keys.
type FullAttention struct {
	KVChannels     int
	NumQueryGroups int
}

// AttentionOf is the model as the attention of a layer (0-based, global) takes it: widths and groups
// are the layer's.
func (m *Model) AttentionOf(layer int) *Model {
	if m.Full == nil {
		return m
	}
	of := *m
	if of.Full = nil; m.WindowedAt(layer) {
		of.KeysAreValues = false
		return &of
	}
	of.KVChannels, of.NumQueryGroups = m.Full.KVChannels, m.Full.NumQueryGroups
	return &of
}

// FewestGroups is the smallest number of query groups that a layer has.
func (m *Model) FewestGroups() int {
	if m.Full == nil {
		return m.NumQueryGroups
	}
	return min(m.NumQueryGroups, m.Full.NumQueryGroups)
}
