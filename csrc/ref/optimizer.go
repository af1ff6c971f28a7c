package ref

import (
	"math"
	"unsafe"

	"monotron/csrc/device"
)

func (b *backend) AdamW(a *device.AdamWArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	b1, b2, eps := float64(a.Beta1), float64(a.Beta2), float64(a.Eps)
	c1, c2, scale := hyper[device.HyperCorrection1], hyper[device.HyperCorrection2], hyper[device.HyperGradScale]
	b.segments(a.Segments, a.Mults, a.Param.Len(), func(from, to int64, lrMult, wdMult float64) {
		lr, decay := hyper[device.HyperLR]*lrMult, hyper[device.HyperWeightDecay]*wdMult
		p, g, m, v := stretch(a.Param, from, to), stretch(a.Grad, from, to), stretch(a.M, from, to), stretch(a.V, from, to)
		for i := range p {
			gi := g[i] * scale
			m[i] = b1*m[i] + (1-b1)*gi
			v[i] = b2*v[i] + (1-b2)*gi*gi
			p[i] -= lr * (m[i]/c1/(math.Sqrt(v[i]/c2)+eps) + decay*p[i])
		}
		store(a.M, from, m)
		store(a.V, from, v)
		storeParam(a.Param, a.Model, from, p)
	})
}

func (b *backend) SGD(a *device.SGDArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	b.segments(a.Segments, a.Mults, a.Param.Len(), func(from, to int64, lrMult, wdMult float64) {
		lr, decay := hyper[device.HyperLR]*lrMult, hyper[device.HyperWeightDecay]*wdMult
		p, g := stretch(a.Param, from, to), stretch(a.Grad, from, to)
		momentum := make([]float64, to-from)
		if a.Momentum.Given() {
			load(momentum, a.Momentum, from)
		}
		for i := range p {
			momentum[i] = float64(a.Mu)*momentum[i] + g[i]*hyper[device.HyperGradScale] + decay*p[i]
			p[i] -= lr * momentum[i]
		}
		if a.Momentum.Given() {
			store(a.Momentum, from, momentum)
		}
		storeParam(a.Param, a.Model, from, p)
	})
}

func (b *backend) Lion(a *device.LionArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	b1, b2 := float64(a.Beta1), float64(a.Beta2)
	b.segments(a.Segments, a.Mults, a.Param.Len(), func(from, to int64, lrMult, wdMult float64) {
		lr, decay := hyper[device.HyperLR]*lrMult, hyper[device.HyperWeightDecay]*wdMult
		p, g, m := stretch(a.Param, from, to), stretch(a.Grad, from, to), stretch(a.M, from, to)
		for i := range p {
			gi := g[i] * hyper[device.HyperGradScale]
			p[i] -= lr * (sign(b1*m[i]+(1-b1)*gi) + decay*p[i])
			m[i] = b2*m[i] + (1-b2)*gi
		}
		store(a.M, from, m)
		storeParam(a.Param, a.Model, from, p)
	})
}

// sign is 1, -1 or, of 0, 0.
func sign(x float64) float64 {
	if x == 0 {
		return 0
	}
	return math.Copysign(1, x)
}

// segments runs body on stretches of each segment of n elements, with the segment's
// multipliers.
func (b *backend) segments(table, mults device.Tensor, n int64, body func(from, to int64, lrMult, wdMult float64)) {
	mult := vector(mults)
	for i, s := range segments(table, n) {
		b.spread(s.to-s.from, 1<<12, func(from, to int64) { body(s.from+from, s.from+to, mult[2*i], mult[2*i+1]) })
	}
}

// segment is elements [from, to) of a flat buffer.
type segment struct{ from, to int64 }

// segments are those that a table lists; without one all n elements.
func segments(table device.Tensor, n int64) []segment {
	if !table.Given() {
		return []segment{{0, n}}
	}
	return unsafe.Slice((*segment)(table.Data), table.Shape[0])
}

func stretch(t device.Tensor, from, to int64) []float64 {
	v := make([]float64, to-from)
	load(v, t, from)
	return v
}

// storeParam stores p, and in the model's dtype what p is after rounding.
func storeParam(param, model device.Tensor, at int64, p []float64) {
	store(param, at, p)
	if model.Given() {
		load(p, param, at)
		store(model, at, p)
	}
}
