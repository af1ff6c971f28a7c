package bpe

import "sync"

// Model is a vocabulary of byte strings with its merges and its pattern. It is
// safe for use by several goroutines.
type Model struct {
	pattern Pattern
	bytes   [256]int32
	merges  *Merges
	tokens  map[string]int32

	mu     sync.Mutex
	free   []*encoder
	packed *packed
}

// NewModel joins the parts. bytes are the ids of the single bytes. tokens, which
// may be nil, are tokens that a piece becomes without merging.
func NewModel(p Pattern, bytes [256]int32, m *Merges, tokens map[string]int32) *Model {
	return &Model{pattern: p, bytes: bytes, merges: m, tokens: tokens}
}

// Append adds the ids of text, which is UTF-8 and is neither changed nor kept.
func (m *Model) Append(dst []int32, text []byte) []int32 {
	e := m.encoder()
	dst = e.text(dst, text)
	m.mu.Lock()
	m.free = append(m.free, e)
	m.mu.Unlock()
	return dst
}

// encoder takes an idle encoder, with what it has learnt, or makes one.
func (m *Model) encoder() *encoder {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		e := m.free[n-1]
		m.free = m.free[:n-1]
		return e
	}
	return newEncoder(m)
}

// SameMerges says whether both models have the same merges with the same ranks.
func (m *Model) SameMerges(o *Model) bool {
	if m.merges.count != o.merges.count || m.bytes != o.bytes {
		return false
	}
	for _, s := range m.merges.slots {
		if s.pair != 0 && *o.merges.slot(s.pair) != s {
			return false
		}
	}
	return true
}
