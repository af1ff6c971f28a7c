package nf4

import (
	"cmp"
	"math"
	"slices"
)

// Block elements share a scale, NestedBlock scales a scale of theirs.
const (
	Block       = 64
	NestedBlock = 256
)

// Table is the value of each code, times the block's scale.
var Table = [16]float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1}

// zeroCode is the code of 0.
const zeroCode = 7

// bounds lie in the middle between neighbours of Table: a value on one has the lower code.
var bounds = func() (b [15]float32) {
	for i := range b {
		b[i] = (Table[i] + Table[i+1]) / 2
	}
	return b
}()

// Dynamic is the value of each byte of a quantised scale, times the scale of its block: 2^i
// numbers of each sign in the i-th decade from 1e-6 on, 0 and 1. They are the middles of equal
// stretches of [0.1, 1], in PyTorch's float32.
var Dynamic = func() (d [256]float32) {
	values := []float32{0, 1}
	for i := range 7 {
		decade, n := float32(math.Pow(10, float64(i-6))), 1<<i
		for j := range n {
			x := decade * ((linspace(j, n) + linspace(j+1, n)) / 2)
			values = append(values, x, -x)
		}
	}
	slices.Sort(values)
	copy(d[:], values)
	return d
}()

// linspace is number k of n+1 equally far apart from 0.1 to 1, as torch.linspace has them.
func linspace(k, n int) float32 {
	const from, to = float32(0.1), float32(1)
	step := (to - from) / float32(n)
	if k < (n+1)/2 {
		return float32(float64(from) + float64(step)*float64(k))
	}
	return float32(float64(to) - float64(step)*float64(n-k))
}

// Quantized is a tensor of n elements.
type Quantized struct {
	Packed []byte    // [(n+1)/2] codes, the first of two in the high half; nil: they are in a file
	Absmax []float32 // [⌈n/64⌉] scales; nil: they are quantised

	Codes        []byte    // [⌈n/64⌉] of scales less Offset
	NestedAbsmax []float32 // [⌈n/64/256⌉]
	Offset       float32   // mean of the scales
}

// Quantize rounds x to codes; double: and its scales to bytes.
func Quantize(x []float32, double bool) *Quantized {
	q := &Quantized{Packed: make([]byte, (len(x)+1)/2)}
	for from := 0; from < len(x); from += Block {
		block := x[from:min(from+Block, len(x))]
		scale := largest(block)
		q.Absmax = append(q.Absmax, scale)
		for i, v := range block {
			code := byte(zeroCode)
			if scale > 0 {
				code = codeOf(v * (1 / scale))
			}
			q.set(from+i, code)
		}
	}
	if len(x)%2 != 0 {
		q.Packed[len(x)/2] |= zeroCode
	}
	if double {
		q.quantizeScales()
	}
	return q
}

// largest is the largest magnitude.
func largest(x []float32) (most float32) {
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	return most
}

// codeOf is how many bounds lie below x.
func codeOf(x float32) (code byte) {
	for _, b := range bounds {
		if b < x {
			code++
		}
	}
	return code
}

func (q *Quantized) set(i int, code byte) {
	if i%2 == 0 {
		code <<= 4
	}
	q.Packed[i/2] |= code
}

// quantizeScales replaces Absmax.
func (q *Quantized) quantizeScales() {
	sum := 0.0
	for _, v := range q.Absmax {
		sum += float64(v)
	}
	q.Offset = float32(sum / float64(max(1, len(q.Absmax))))
	for from := 0; from < len(q.Absmax); from += NestedBlock {
		block := slices.Clone(q.Absmax[from:min(from+NestedBlock, len(q.Absmax))])
		for i := range block {
			block[i] -= q.Offset
		}
		scale := largest(block)
		q.NestedAbsmax = append(q.NestedAbsmax, scale)
		for _, v := range block {
			if scale > 0 {
				v *= 1 / scale
			}
			q.Codes = append(q.Codes, nearest(v))
		}
	}
	q.Absmax = nil
}

// nearest is the index of Dynamic's value next to x; of two as near the lower one.
func nearest(x float32) byte {
	above, _ := slices.BinarySearchFunc(Dynamic[:], x, func(a, b float32) int { return cmp.Compare(a, b) })
	switch {
	case above == 0:
		return 0
	case above == len(Dynamic), x-Dynamic[above-1] <= Dynamic[above]-x:
		return byte(above - 1)
	}
	return byte(above)
}

// Scale is that of a block.
func (q *Quantized) Scale(block int64) float32 {
	if q.Absmax != nil {
		return q.Absmax[block]
	}
	return float32(Dynamic[q.Codes[block]]*q.NestedAbsmax[block/NestedBlock]) + q.Offset
}

// Values fills dst with the elements from `from` on, of which packed has the codes: its first
// byte has that of element from or, where that is odd, from-1.
func (q *Quantized) Values(dst []float32, packed []byte, from int64) {
	for i := range dst {
		at := from + int64(i)
		dst[i] = Table[codeAt(packed, at-from&^1)] * q.Scale(at/Block)
	}
}

// codeAt is that of element i of packed.
func codeAt(packed []byte, i int64) byte {
	if i%2 == 0 {
		return packed[i/2] >> 4
	}
	return packed[i/2] & 15
}

// Dequantize fills dst with the elements from `from` on.
func (q *Quantized) Dequantize(dst []float32, from int64) { q.Values(dst, q.Packed[from/2:], from) }
