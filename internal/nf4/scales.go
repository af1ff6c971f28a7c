package nf4

import (
	"encoding/binary"
	"math"
)

// The scales of a page. Values of f32 have one scale that gives them, which is kept in f32. Those of 16 bits are
// rounded, and any scale of an interval gives them: so a page has a base and a step, bf16, of which each block's scale
// is base + multiple·step with a multiple of 16 bits.
const (
	fullScales = pageBlocks * 4
	halfScales = pageBlocks*2 + 4
)

// interval is the scales that give a block's values.
type interval struct{ low, high float64 }

// scale is that of block k of a page in codes.
func (p *Packed) scale(page []byte, k int64) float32 {
	if p.scales == fullScales {
		return math.Float32frombits(binary.LittleEndian.Uint32(page[4*k:]))
	}
	base, step := halfStart(page)
	return multiple(base, step, float32(binary.LittleEndian.Uint16(page[4+2*k:])))
}

// halfStart is the base and the step of a page's scales.
func halfStart(page []byte) (base, step float32) {
	return fromBF16(page), fromBF16(page[2:])
}

func fromBF16(b []byte) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
}

// multiple rounds twice on every processor: the conversion keeps Go from fusing the two.
func multiple(base, step, n float32) float32 { return base + float32(n*step) }

// putScales writes a scale of each block's interval to the start of a page; false: none of those tried fits.
func (p *Packed) putScales(page []byte, within []interval) bool {
	if p.scales == fullScales {
		for k, w := range within {
			binary.LittleEndian.PutUint32(page[4*k:], math.Float32bits(float32(w.low)))
		}
		return true
	}
	// From the least to the largest scale there are 2^16-1 steps. A block of zeros takes any scale.
	from, to := math.Inf(1), 0.0
	for _, w := range within {
		if !math.IsInf(w.high, 1) {
			from, to = min(from, w.low), max(to, w.high)
		}
	}
	if from > to {
		return false // nothing but zeros, some of them negative
	}
	// Steps from the least that reaches the largest scale on: one may miss an interval that the next hits.
	binary.LittleEndian.PutUint16(page, uint16(math.Float32bits(float32(from))>>16))
	step := uint16(math.Float32bits(float32((to-float64(fromBF16(page)))/math.MaxUint16))>>16) + 1
	for range stepsTried {
		binary.LittleEndian.PutUint16(page[2:], step)
		if putMultiples(page, within) {
			return true
		}
		step++
	}
	return false
}

// stepsTried for a page.
const stepsTried = 16

// putMultiples writes the multiples of a page's step that give scales of the intervals.
func putMultiples(page []byte, within []interval) bool {
	base, step := halfStart(page)
	for k, w := range within {
		n := 0.0
		if !math.IsInf(w.high, 1) {
			n = math.Round(((w.low+w.high)/2 - float64(base)) / float64(step))
			scale := float64(multiple(base, step, float32(n)))
			if n < 0 || n > math.MaxUint16 || scale < w.low || scale > w.high {
				return false
			}
		}
		binary.LittleEndian.PutUint16(page[4+2*k:], uint16(n))
	}
	return true
}
