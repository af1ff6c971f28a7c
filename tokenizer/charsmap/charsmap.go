// Package charsmap reads SentencePiece's precompiled table of replacements: a
// double-array trie (Darts) of byte strings, and the texts they become.
package charsmap

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Map is such a table.
type Map struct {
	units []uint32
	texts string // each ends with a NUL
}

// Parse reads a table: the size of the trie in bytes (u32), the trie's units
// (u32 each), the texts. It checks every step a lookup can take.
func Parse(b []byte) (*Map, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%d bytes are not a valid table", len(b))
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	if size >= uint64(len(b)) || size > uint64(len(b)-4) || size%4 != 0 || size == 0 {
		return nil, fmt.Errorf("a trie of %d bytes does not fit into a table of %d bytes", size, len(b))
	}
	m := &Map{units: make([]uint32, size/4), texts: string(b[4+size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	return m, nil
}

// text is the replacement that a leaf's value points to.
func (m *Map) text(value uint32) (string, bool) {
	if int(value) >= len(m.texts) {
		return "", false
	}
	s, _, _ := strings.Cut(m.texts[value:], "\x00")
	return s, true
}

// walk calls visit for each key that text begins with, the shortest first,
// until it returns false.
func (m *Map) walk(text string, visit func(n int, value uint32) bool) {
	node := offset(m.units[0])
	for i := 0; i < len(text) && text[i] != 0; i++ {
		node ^= uint32(text[i])
		if int(node) >= len(m.units) {
			return
		}
		unit := m.units[node]
		if unit&(1<<31|0xff) != uint32(text[i]) {
			return
		}
		node ^= offset(unit)
		if unit>>8&1 != 0 {
			if int(node) >= len(m.units) {
				return
			}
			if !visit(i+1, m.units[node]&(1<<31-1)) {
				return
			}
		}
	}
}

func offset(unit uint32) uint32 { return (unit >> 10) << ((unit & (1 << 9)) >> 6) }

// Longest is the replacement of the longest key that text begins with, and
// that key's length; n = 0 where there is none.
func (m *Map) Longest(text string) (n int, to string) {
	m.walk(text, func(length int, value uint32) bool {
		if s, ok := m.text(value); ok {
			n, to = length, s
		}
		return true
	})
	return n, to
}

// Shortest is the replacement of the shortest key that text begins with.
func (m *Map) Shortest(text string) (to string, ok bool) {
	m.walk(text, func(_ int, value uint32) bool {
		to, ok = m.text(value)
		return false
	})
	return to, ok
}
