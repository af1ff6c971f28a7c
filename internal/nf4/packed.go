package nf4

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"monotron/internal/safetensors"
)

// pageElements of a Packed, in pageBlocks, are kept in one way.
const (
	pageBlocks   = 16
	pageElements = pageBlocks * Block
)

// Packed is memory for n elements of a type, of which most are values of NF4: a page of 1024
// whose blocks of 64 each are one f32 times values of the table, rounded to the type, takes 4.5
// bits an element, or of a type of 16 bits 4.3 (scales.go). Any other page is kept as it is: whatever is written is
// read again, bit for bit.
type Packed struct {
	dtype  string
	width  int64
	scales int64   // bytes of a page's scales, which its codes follow
	state  []int32 // of each page: 0: zeros; inCodes; else its slot's number, from 1
	codes  []byte  // [pages, pageBytes]
	alloc  func(bytes int64) ([]byte, error)
	locks  [64]sync.Mutex

	mu    sync.Mutex // of the fields below
	slots [][]byte   // pages that are kept as they are
	chunk []byte     // of which the next slots are made
	free  []int32    // numbers of slots that nobody uses any more
}

// inCodes is the state of a page that lies in its codes.
const inCodes = -1

// chunkSlots are made at a time.
const chunkSlots = 256

// NewPacked makes zeros of a type that safetensors spells dtype: F32, BF16 or F16. alloc gives
// zeroed memory, which takes space where it is written.
func NewPacked(dtype string, n int64, alloc func(bytes int64) ([]byte, error)) (*Packed, error) {
	p := shape(dtype, alloc)
	p.state = make([]int32, (n+pageElements-1)/pageElements)
	var err error
	p.codes, err = alloc(int64(len(p.state)) * p.pageBytes())
	return p, err
}

// shape is a Packed without elements.
func shape(dtype string, alloc func(bytes int64) ([]byte, error)) *Packed {
	if dtype == "F32" {
		return &Packed{dtype: dtype, width: 4, scales: fullScales, alloc: alloc}
	}
	return &Packed{dtype: dtype, width: 2, scales: halfScales, alloc: alloc}
}

// PackedSize is what n elements take if all of them are values of NF4.
func PackedSize(dtype string, n int64) int64 {
	return (n + pageElements - 1) / pageElements * (4 + shape(dtype, nil).pageBytes())
}

// pageBytes is a page in codes: its scales, and of each block 64 codes.
func (p *Packed) pageBytes() int64 { return p.scales + pageElements/2 }

// page is where page i lies if it lies in codes.
func (p *Packed) page(i int64) []byte { return p.codes[i*p.pageBytes():][:p.pageBytes()] }

// Bytes is what the elements take.
func (p *Packed) Bytes() int64 {
	n := 4*int64(len(p.state)) + int64(len(p.slots))*pageElements*p.width
	for _, s := range p.state {
		if s == inCodes {
			n += p.pageBytes()
		}
	}
	return n
}

// ReadAt fills dst with the bytes from `at` on. Several goroutines may read and write at once.
func (p *Packed) ReadAt(dst []byte, at int64) error {
	return p.each(dst, at, func(i int64, part []byte, from int64) error {
		p.load(part, i, from)
		return nil
	})
}

// WriteAt replaces the bytes from `at` on.
func (p *Packed) WriteAt(src []byte, at int64) error {
	return p.each(src, at, func(i int64, part []byte, from int64) error {
		page := make([]byte, pageElements*p.width)
		if len(part) < len(page) {
			p.load(page, i, 0)
		}
		copy(page[from:], part)
		return p.store(page, i)
	})
}

// load fills dst with page i from a byte of it on.
func (p *Packed) load(dst []byte, i, from int64) {
	switch s := p.state[i]; s {
	case 0:
		clear(dst)
	case inCodes:
		p.decode(dst, p.page(i), from)
	default:
		copy(dst, p.slot(s)[from:])
	}
}

// store keeps page i in its codes where these say all of it.
func (p *Packed) store(page []byte, i int64) error {
	before, coded := p.state[i], p.encode(page)
	switch {
	case zeros(page):
		p.state[i] = 0
	case coded != nil:
		copy(p.page(i), coded)
		p.state[i] = inCodes
	case before > 0:
		copy(p.slot(before), page)
		return nil
	default:
		s, err := p.newSlot()
		if err != nil {
			return err
		}
		copy(p.slot(s), page)
		p.state[i] = s
	}
	if before > 0 {
		p.mu.Lock()
		p.free = append(p.free, before)
		p.mu.Unlock()
	}
	return nil
}

func (p *Packed) slot(number int32) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots[number-1]
}

// newSlot is the number of a slot that nobody uses.
func (p *Packed) newSlot() (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s, nil
	}
	size := pageElements * p.width
	if len(p.chunk) == 0 {
		var err error
		if p.chunk, err = p.alloc(chunkSlots * size); err != nil {
			return 0, err
		}
	}
	p.slots, p.chunk = append(p.slots, p.chunk[:size]), p.chunk[size:]
	return int32(len(p.slots)), nil
}

// each shows do the part of b in each page, with where in the page it begins.
func (p *Packed) each(b []byte, at int64, do func(page int64, part []byte, from int64) error) error {
	size := pageElements * p.width
	for len(b) > 0 {
		i, from := at/size, at%size
		n := min(int64(len(b)), size-from)
		lock := &p.locks[i%int64(len(p.locks))]
		lock.Lock()
		err := do(i, b[:n], from)
		lock.Unlock()
		if err != nil {
			return err
		}
		b, at = b[n:], at+n
	}
	return nil
}

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// decode fills dst from a page in codes, from a byte of the page on.
func (p *Packed) decode(dst, page []byte, from int64) {
	size := Block * p.width
	for len(dst) > 0 {
		k, skip := from/size, from%size
		n := min(int64(len(dst)), size-skip)
		if n == size {
			p.spread(dst[:n], page, k)
		} else {
			var block [4 * Block]byte
			p.spread(block[:size], page, k)
			copy(dst[:n], block[skip:])
		}
		dst, from = dst[n:], from+n
	}
}

// spread writes block k of a page in codes.
func (p *Packed) spread(dst, page []byte, k int64) {
	scale, codes := p.scale(page, k), page[p.scales+k*Block/2:][:Block/2]
	var bits [16]uint32
	switch p.dtype {
	case "F32":
		for c, t := range Table {
			bits[c] = math.Float32bits(t * scale)
		}
		for i, two := range codes {
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(bits[two>>4])|uint64(bits[two&15])<<32)
		}
		return
	case "BF16":
		for c, t := range Table { // to nearest, ties to even
			b := math.Float32bits(t * scale)
			bits[c] = (b + 0x7fff + b>>16&1) >> 16
		}
	default:
		for c, t := range Table {
			bits[c] = uint32(safetensors.ToF16(t * scale))
		}
	}
	for i, two := range codes {
		binary.LittleEndian.PutUint32(dst[4*i:], bits[two>>4]|bits[two&15]<<16)
	}
}

// encode is a page in codes; nil: it is not one of NF4's, or zeros.
func (p *Packed) encode(page []byte) []byte {
	if zeros(page) {
		return nil
	}
	values := make([]float64, pageElements)
	safetensors.Decode(values, p.dtype, page)
	out, scales := make([]byte, p.scales, p.pageBytes()), make([]interval, 0, pageBlocks)
	for block := range slices.Chunk(values, Block) {
		scale, codes := p.block(block)
		out, scales = append(out, codes[:]...), append(scales, scale)
	}
	again := make([]byte, len(page))
	if !p.putScales(out, scales) {
		return nil
	}
	if p.decode(again, out, 0); !bytes.Equal(again, page) {
		return nil
	}
	return out
}

// block finds codes of 64 values, and the scales that round to each of them.
func (p *Packed) block(x []float64) (scale interval, codes [Block / 2]byte) {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	low, high := most, most
	if p.dtype != "F32" {
		low, high = 0, math.Inf(1)
	}
	for i, v := range x {
		code := byte(zeroCode)
		if most > 0 {
			code = nearestCode(v / most)
		}
		if i%2 == 0 {
			codes[i/2] = code << 4
		} else {
			codes[i/2] |= code
		}
		if t := math.Abs(float64(Table[code])); t > 0 && p.dtype != "F32" {
			below, above := p.halves(v)
			low, high = max(low, (math.Abs(v)-below)/t), min(high, (math.Abs(v)+above)/t)
		}
	}
	return interval{low, high}, codes
}

// nearestCode is the code whose value is next to x.
func nearestCode(x float64) (code byte) {
	for c := range Table {
		if math.Abs(x-float64(Table[c])) < math.Abs(x-float64(Table[code])) {
			code = byte(c)
		}
	}
	return code
}

// halves are half the distances of |v| from its neighbours in the type, below and above.
func (p *Packed) halves(v float64) (below, above float64) {
	fraction, exponent := math.Frexp(math.Abs(v))
	above = math.Ldexp(1, exponent-1-8)
	if p.dtype == "F16" {
		above = math.Ldexp(1, max(exponent-1, -14)-11)
	}
	if below = above; fraction == 0.5 {
		below /= 2
	}
	return below, above
}
