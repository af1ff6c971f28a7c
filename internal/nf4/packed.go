package nf4

import (
	"bytes"
	"math"
	"sync"

	"monotron/internal/safetensors"
)

// pageElements of a Packed are kept in one way.
const pageElements = 16 * Block

// pageBytes is a page in codes: of each block a scale and 64 codes.
const pageBytes = pageElements / Block * (4 + Block/2)

// Packed is memory for n elements of a type, of which most are values of NF4: a page of 1024
// whose blocks of 64 each are one f32 times values of the table, rounded to the type, takes 4.5
// bits an element. Any other page is kept as it is: whatever is written is read again, bit for bit.
type Packed struct {
	dtype string
	width int64
	pages [][]byte // nil: zeros; pageBytes: codes; else as they are
	locks [64]sync.Mutex
}

// NewPacked makes zeros of a type that safetensors spells dtype: F32, BF16 or F16.
func NewPacked(dtype string, n int64) *Packed {
	width := int64(2)
	if dtype == "F32" {
		width = 4
	}
	return &Packed{dtype: dtype, width: width, pages: make([][]byte, (n+pageElements-1)/pageElements)}
}

// Bytes is what the elements take.
func (p *Packed) Bytes() (n int64) {
	for _, page := range p.pages {
		n += int64(len(page))
	}
	return n + 24*int64(len(p.pages))
}

// ReadAt fills dst with the bytes from `at` on. Several goroutines may read and write at once.
func (p *Packed) ReadAt(dst []byte, at int64) error {
	p.each(dst, at, func(i int64, part []byte, from int64) {
		if page := p.pages[i]; from == 0 && int64(len(part)) == pageElements*p.width && len(page) == pageBytes {
			p.decode(part, page)
		} else {
			copy(part, p.plain(i)[from:])
		}
	})
	return nil
}

// WriteAt replaces the bytes from `at` on.
func (p *Packed) WriteAt(src []byte, at int64) error {
	p.each(src, at, func(i int64, part []byte, from int64) {
		page := p.plain(i)
		copy(page[from:], part)
		if p.pages[i] = p.encode(page); p.pages[i] == nil && !zeros(page) {
			p.pages[i] = page
		}
	})
	return nil
}

// each shows do the part of b in each page, with where in the page it begins.
func (p *Packed) each(b []byte, at int64, do func(page int64, part []byte, from int64)) {
	size := pageElements * p.width
	for len(b) > 0 {
		i, from := at/size, at%size
		n := min(int64(len(b)), size-from)
		lock := &p.locks[i%int64(len(p.locks))]
		lock.Lock()
		do(i, b[:n], from)
		lock.Unlock()
		b, at = b[n:], at+n
	}
}

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// plain is a page's bytes, to be changed.
func (p *Packed) plain(i int64) []byte {
	page := make([]byte, pageElements*p.width)
	if len(p.pages[i]) == pageBytes {
		p.decode(page, p.pages[i])
	} else {
		copy(page, p.pages[i])
	}
	return page
}

// decode fills a page from its codes.
func (p *Packed) decode(dst, page []byte) {
	var values [16]float32
	raw := make([]byte, 16*p.width)
	for b := range pageElements / Block {
		block := page[b*(4+Block/2):]
		scale := decoded(block[:4])[0]
		for c := range values {
			values[c] = Table[c] * scale
		}
		safetensors.Encode(raw[:0], p.dtype, values[:])
		p.spread(dst[int64(b)*Block*p.width:], raw, block[4:4+Block/2])
	}
}

// spread copies a block's values by their codes.
func (p *Packed) spread(dst, values, codes []byte) {
	for i, two := range codes {
		high, low := int64(two>>4)*p.width, int64(two&15)*p.width
		copy(dst[int64(2*i)*p.width:][:p.width], values[high:])
		copy(dst[int64(2*i+1)*p.width:][:p.width], values[low:])
	}
}

// encode is a page in codes; nil: it is none of NF4's, or zeros.
func (p *Packed) encode(page []byte) []byte {
	if zeros(page) {
		return nil
	}
	values := make([]float64, pageElements)
	safetensors.Decode(values, p.dtype, page)
	out := make([]byte, 0, pageBytes)
	for from := 0; from < pageElements; from += Block {
		scale, codes := p.block(values[from : from+Block])
		out = append(append(out, floats([]float32{scale})...), codes[:]...)
	}
	again := make([]byte, len(page))
	if p.decode(again, out); !bytes.Equal(again, page) {
		return nil
	}
	return out
}

// block finds codes of 64 values, and a scale that rounds to each of them: one in the middle of
// those that do.
func (p *Packed) block(x []float64) (scale float32, codes [Block / 2]byte) {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	low, high := most, most
	if p.dtype != "F32" && most > 0 {
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
	return float32((low + high) / 2), codes
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
