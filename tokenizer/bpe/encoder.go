package bpe

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unsafe"
)

// encoder is one goroutine's working state. Most pieces of a text are words seen
// before, so their ids are remembered: short pieces in a table whose key is the
// piece itself, where a piece stands at its hash or at the other entry of that
// cache line, with those used last in a small table in front; the others in a map.
type encoder struct {
	m      *Model
	kernel *kernel // nil: all is done here, in Go
	split  splitter
	hot    []shortPiece
	short  []shortPiece
	all    [window]entry
	more   []int32 // ids of short pieces that have too many for their entry
	long   map[string][]int32
	parts  []Part
	hard   func(dst []int32, piece []byte) []int32 // longPiece
}

const (
	hotLog      = 14      // entries of the small table, log2: 256 KB, few pages
	shortLog    = 18      // entries of the table, log2: 8 MB, touched as they fill
	shortBytes  = 15      // longest piece in it
	shortIDs    = 3       // most ids in an entry
	moreIDs     = 1 << 21 // more starts over beyond this, with the table
	longBytes   = 256     // longest piece in the map
	longEntries = 1 << 14 // the map starts over beyond this
)

// shortPiece is 32 bytes. lo and hi are the piece, padded with zeros, its length
// in hi's top byte; n = 0 is an empty entry. With n > shortIDs the ids are
// more[ids[0]:][:n].
type shortPiece struct {
	lo, hi uint64
	ids    [shortIDs]int32
	n      int32
}

func newEncoder(m *Model) *encoder {
	e := &encoder{m: m, kernel: newKernel(m), long: map[string][]int32{}}
	e.hard = e.longPiece
	if e.kernel == nil {
		e.split = newSplitter(m.pattern)
	}
	return e
}

// tables makes the tables of short pieces.
func (e *encoder) tables() {
	e.hot, e.short = make([]shortPiece, 1<<hotLog), make([]shortPiece, 1<<shortLog)
}

// text adds the ids of text, which is UTF-8 and read without special tokens.
func (e *encoder) text(dst []int32, text []byte) []int32 {
	if e.kernel != nil {
		return e.kernel.text(dst, text, e.hard)
	}
	if e.hot == nil {
		e.tables()
	}
	i := 0
	if e.m.pattern.gpt2 {
		for i+margin <= len(text) {
			s := starts(text[i:])
			if s == 1 { // not ASCII, or a long piece
				end := e.split.nextGPT2(text, i)
				dst = e.piece(dst, text, i, end)
				i = end
				continue
			}
			dst, i = e.window(dst, text, i, s)
		}
	}
	for i < len(text) {
		end := e.split.next(text, i)
		dst = e.piece(dst, text, i, end)
		i = end
	}
	return dst
}

// entry holds the table's entry for one piece: the ids and their count, which
// are good where differs is 0.
type entry struct {
	found   [shortIDs + 1]int32
	differs uint64
	end     int
}

// window adds the pieces between the starts s of the window at text[i] and
// returns where the last one starts. margin bytes follow i. All pieces are
// looked up before any is used: the loads overlap, and no guess about one piece
// waits for memory.
func (e *encoder) window(dst []int32, text []byte, i int, s uint64) ([]int32, int) {
	count := find(e.hot, text[i:], s, &e.all)
	if cap(dst)-len(dst) < window+shortIDs {
		dst = grow(dst)
	}
	n, at := len(dst), 0
	out := unsafe.Pointer(unsafe.SliceData(dst))
	for k := range e.all[:count] {
		l := &e.all[k]
		if l.differs == 0 {
			// All of the entry's ids, then its count, which the next piece overwrites.
			*(*[shortIDs + 1]int32)(unsafe.Add(out, 4*n)) = l.found
			n += int(l.found[shortIDs])
			at = l.end
			continue
		}
		dst = e.piece(dst[:n], text, i+at, i+l.end)
		if cap(dst)-len(dst) < window+shortIDs {
			dst = grow(dst)
		}
		n, at = len(dst), l.end
		out = unsafe.Pointer(unsafe.SliceData(dst))
	}
	return dst[:n], i + at
}

// find asks the table for each piece of a window and counts them.
func find(hot []shortPiece, text []byte, s uint64, all *[window]entry) int {
	base, table := unsafe.Pointer(&text[0]), unsafe.Pointer(&hot[0])
	at, count := 0, 0
	for s &= s - 1; s != 0; s &= s - 1 {
		next := bits.TrailingZeros64(s)
		size := next - at
		from := (*[2]uint64)(unsafe.Add(base, at)) // at + 16 <= margin
		k := &masks[size&15]
		lo, hi := from[0]&k[0], from[1]&k[1]|uint64(size)<<56
		p := (*shortPiece)(unsafe.Add(table, hash(lo, hi)>>(64-hotLog)*uint64(unsafe.Sizeof(shortPiece{}))))
		l := &all[count&(window-1)]
		l.found = *(*[shortIDs + 1]int32)(unsafe.Pointer(&p.ids))
		l.differs = p.lo ^ lo | p.hi ^ hi | uint64(uint32(p.n)>>2) | uint64(size>>4)
		l.end = next
		count++
		at = next
	}
	return count
}

func grow(dst []int32) []int32 {
	grown := make([]int32, len(dst), 2*cap(dst)+window+shortIDs)
	copy(grown, dst)
	return grown
}

// masks keep the first n bytes of two words.
var masks = func() (m [shortBytes + 1][2]uint64) {
	for n := range m {
		m[n] = [2]uint64{^uint64(0), 0}
		if n < 8 {
			m[n][0] = 1<<(8*n) - 1
		} else {
			m[n][1] = 1<<(8*(n-8)) - 1
		}
	}
	return m
}()

func hash(lo, hi uint64) uint64 {
	return (lo ^ hi*0xff51afd7ed558ccd) * 0x9e3779b97f4a7c15
}

// piece adds the ids of the piece text[i:end].
func (e *encoder) piece(dst []int32, text []byte, i, end int) []int32 {
	if e.hot == nil {
		e.tables()
	}
	if end-i <= shortBytes {
		return e.shortPiece(dst, text, i, end)
	}
	return e.longPiece(dst, text[i:end])
}

func (e *encoder) shortPiece(dst []int32, text []byte, i, end int) []int32 {
	lo, hi := key(text, i, end)
	h := hash(lo, hi)
	p := &e.hot[h>>(64-hotLog)]
	if p.lo != lo || p.hi != hi {
		h >>= 64 - shortLog
		if kept := &e.short[h]; kept.lo == lo && kept.hi == hi {
			*p = *kept
		} else if kept := &e.short[h^1]; kept.lo == lo && kept.hi == hi {
			*p = *kept
		}
	}
	if p.lo == lo && p.hi == hi {
		if p.n > shortIDs {
			return append(dst, e.more[p.ids[0]:][:p.n]...)
		}
		return append(dst, p.ids[:p.n]...)
	}
	start := len(dst)
	dst = e.merge(dst, text[i:end])
	*p = e.remember(h, lo, hi, dst[start:])
	return dst
}

// remember enters a short piece where its hash points; what was there moves to
// the other entry of the line.
func (e *encoder) remember(h, lo, hi uint64, ids []int32) shortPiece {
	p := shortPiece{lo: lo, hi: hi, n: int32(len(ids))}
	if len(ids) > shortIDs {
		if len(e.more) > moreIDs {
			clear(e.hot)
			clear(e.short)
			e.more = e.more[:0]
		}
		p.ids[0] = int32(len(e.more))
		e.more = append(e.more, ids...)
	} else {
		copy(p.ids[:], ids)
	}
	e.short[h^1], e.short[h] = e.short[h], p
	return p
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
	k := &masks[n]
	return lo & k[0], hi&k[1] | uint64(n)<<56
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
	if id, ok := e.m.tokens[string(piece)]; ok {
		return append(dst, id)
	}
	e.parts = e.parts[:0]
	for _, b := range piece {
		e.parts = append(e.parts, Part{ID: e.m.bytes[b]})
	}
	return e.m.merges.Merge(dst, e.parts)
}
