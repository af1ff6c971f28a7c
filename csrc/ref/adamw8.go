package ref

import (
	"math"
	"unsafe"

	"monotron/csrc/device"
)

// AdamW8 computes in float32, as every device does: codes are compared, and a rounding more would show.
func (b *backend) AdamW8(a *device.AdamW8Args) {
	if vector(a.Hyper)[device.HyperSkip] != 0 {
		return
	}
	mults := vector(a.Mults)
	for i, s := range segments(a.Segments, a.Param.Len()) {
		u := newUpdate8(a, mults[2*i], mults[2*i+1])
		blocks := (s.to - s.from + device.CodeBlock - 1) / device.CodeBlock
		b.spread(blocks, 16, func(first, end int64) {
			for k := first; k < end; k++ {
				from := s.from + k*device.CodeBlock
				u.block(a, from, min(from+device.CodeBlock, s.to))
			}
		})
	}
}

// update8 is what the blocks of a segment have in common.
type update8 struct {
	scale, b1, r1, b2, r2 float32 // of gradients; β and 1−β
	shrink, step          float32 // factor of a parameter, of its direction
	root, eps             float32
	m, v                  moment8
}

// moment8 is a moment: its codes, scales and tables.
type moment8 struct {
	codes, nearest []uint8
	most, values   []float32
}

func newUpdate8(a *device.AdamW8Args, lrMult, wdMult float64) *update8 {
	rates, blocks := vector(a.Rates), a.MScales.Len()
	lr := rates[device.RateLR] * lrMult
	moment := func(codes, most device.Tensor, at int64) moment8 {
		return moment8{codes: of[uint8](codes.Data, codes.Len()), most: of[float32](most.Data, blocks), values: of[float32](a.Maps.At(at).Data, 256),
			nearest: of[uint8](a.Nearest.At(at).Data, device.NearestCodes)}
	}
	return &update8{
		scale: float32(vector(a.Hyper)[device.HyperGradScale]),
		b1:    float32(a.Beta1), r1: float32(1 - a.Beta1), b2: float32(a.Beta2), r2: float32(1 - a.Beta2),
		shrink: float32(1 - lr*(rates[device.RateWeightDecay]*wdMult)), step: float32(-lr / rates[device.RateCorrection1]),
		root: float32(rates[device.RateCorrection2]), eps: float32(a.Eps),
		m: moment(a.MCodes, a.MScales, 0), v: moment(a.VCodes, a.VScales, 1),
	}
}

func of[T any](p unsafe.Pointer, n int64) []T { return unsafe.Slice((*T)(p), n) }

// block updates elements [from, to), which share a scale.
func (u *update8) block(a *device.AdamW8Args, from, to int64) {
	param, grad := of[float32](a.Param.Data, a.Param.Len()), of[float32](a.Grad.Data, a.Param.Len())
	at := from / device.CodeBlock
	m, v := make([]float32, to-from), make([]float32, to-from)
	for i := range m {
		k := from + int64(i)
		g := grad[k] * u.scale
		m[i] = fused(g, u.r1, float32(u.m.value(k, at)*u.b1))
		v[i] = fused(float32(u.r2*g), g, float32(u.v.value(k, at)*u.b2))
		under := float32(float32(math.Sqrt(float64(v[i])))/u.root) + u.eps
		param[k] = float32(param[k]*u.shrink) + float32(float32(u.step*m[i])/under)
	}
	u.m.round(m, from, at)
	u.v.round(v, from, at)
	if a.Model.Given() {
		p := make([]float64, to-from)
		load(p, a.Param, from)
		store(a.Model, from, p)
	}
}

// value is that of element k of a block.
func (m *moment8) value(k, block int64) float32 { return m.values[m.codes[k]] * m.most[block] }

// round gives elements from `from` on, those of a block, codes.
func (m *moment8) round(x []float32, from, block int64) {
	most := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	m.most[block] = most
	inverse := 1 / most
	for i, v := range x {
		code := uint8(0)
		if most > 0 {
			code = m.nearest[stretchOf(float32(v*inverse))]
		}
		m.codes[from+int64(i)] = code
	}
}

// stretchOf is in which of device.NearestCodes stretches of [-1, 1] x lies; no number: in the first.
func stretchOf(x float32) int {
	if !(x > -1) {
		x = -1
	}
	half := float32(min(x, 1)+1) * 0.5
	return int(float32(half*(device.NearestCodes-1)) + 0.5)
}

// fused is x·y+z, rounded once.
func fused(x, y, z float32) float32 {
	p := float64(x) * float64(y) // exact
	sum := p + float64(z)
	back := sum - p
	rest := (p - (sum - back)) + (float64(z) - back) // what the sum lost
	// A last bit of 1 says that more follows, so that the second rounding is of the exact sum.
	if bits := math.Float64bits(sum); bits&1 == 0 && (rest < 0 || rest > 0) {
		if (rest > 0) == (sum > 0) {
			sum = math.Float64frombits(bits + 1)
		} else {
			sum = math.Float64frombits(bits - 1)
		}
	}
	return float32(sum)
}
