package bpe

import (
	"encoding/binary"
	"strings"
)

// encoder is one goroutine's working state. Most pieces of a text are words seen
// before, so their ids are remembered: short pieces with few ids in a
// direct-mapped table whose key is the piece itself, the others in a map.
type encoder struct {
	m     *Model
	split splitter
	short []shortPiece
	long  map[string][]int32
	parts []Part
}

const (
	shortLog    = 16      // entries of the table, log2: 2 MB
	shortBytes  = 15      // longest piece in it
	longBytes   = 256     // longest piece in the map
	longEntries = 1 << 14 // the map starts over beyond this
)

// shortPiece is 32 bytes. lo and hi are the piece, padded with zeros, its length
// in hi's top byte; n = 0 is an empty entry.
type shortPiece struct {
	lo, hi uint64
	n      int32
	ids    [3]int32
}

func newEncoder(m *Model) *encoder {
	return &encoder{
		m:     m,
		split: newSplitter(m.pattern),
		short: make([]shortPiece, 1<<shortLog),
		long:  map[string][]int32{},
	}
}

// text adds the ids of text, which is UTF-8 and read without special tokens.
func (e *encoder) text(dst []int32, text []byte) []int32 {
	for i := 0; i < len(text); {
		end := e.split.next(text, i)
		dst = e.piece(dst, text, i, end)
		i = end
	}
	return dst
}

// piece adds the ids of the piece text[i:end].
func (e *encoder) piece(dst []int32, text []byte, i, end int) []int32 {
	if end-i <= shortBytes {
		return e.shortPiece(dst, text, i, end)
	}
	return e.longPiece(dst, text[i:end])
}

func (e *encoder) shortPiece(dst []int32, text []byte, i, end int) []int32 {
	lo, hi := key(text, i, end)
	s := &e.short[(lo^hi*0xff51afd7ed558ccd)*0x9e3779b97f4a7c15>>(64-shortLog)]
	if s.lo == lo && s.hi == hi && s.n > 0 {
		if s.n == 1 {
			return append(dst, s.ids[0])
		}
		return append(dst, s.ids[:s.n]...)
	}
	start := len(dst)
	dst = e.merge(dst, text[i:end])
	if n := len(dst) - start; n <= len(s.ids) {
		s.lo, s.hi, s.n = lo, hi, int32(n)
		copy(s.ids[:], dst[start:])
	}
	return dst
}

// key is text[i:end], at most shortBytes long, as two words.
func key(text []byte, i, end int) (lo, hi uint64) {
	n := end - i
	if i+16 <= len(text) {
		lo, hi = binary.LittleEndian.Uint64(text[i:]), binary.LittleEndian.Uint64(text[i+8:])
	} else {
		var b [16]byte
		copy(b[:], text[i:end])
		lo, hi = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	}
	if n <= 8 {
		lo, hi = lo&(^uint64(0)>>(64-8*n)), 0
	} else {
		hi &= ^uint64(0) >> (128 - 8*n)
	}
	return lo, hi | uint64(n)<<56
}

func (e *encoder) longPiece(dst []int32, piece []byte) []int32 {
	if len(piece) > longBytes {
		return e.merge(dst, piece)
	}
	if ids, ok := e.long[string(piece)]; ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = e.merge(dst, piece)
	if len(e.long) >= longEntries {
		clear(e.long)
	}
	e.long[strings.Clone(string(piece))] = append([]int32(nil), dst[start:]...)
	return dst
}

// merge starts from the piece's bytes and joins them.
func (e *encoder) merge(dst []int32, piece []byte) []int32 {
	if id, ok := e.m.whole[string(piece)]; ok {
		return append(dst, id)
	}
	e.parts = e.parts[:0]
	for _, b := range piece {
		e.parts = append(e.parts, Part{ID: e.m.bytes[b]})
	}
	return e.m.merges.Merge(dst, e.parts)
}
