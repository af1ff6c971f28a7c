package ref

import (
	"math"

	"monotron/csrc/device"
)

// mask draws what a Dropout names.
type mask struct {
	on        bool
	key       uint64
	threshold uint32
	keep      float64 // what a kept value is multiplied by
	jitter    float64 // instead: how far from 1 a factor is at most
	drop      *device.Dropout
	samples   []int32
}

func newMask(d *device.Dropout) mask {
	if d.Rate == 0 && d.Jitter == 0 {
		return mask{}
	}
	step := uint64(int64(one(d.Step, 0)))
	return mask{true, device.StepKey(d.Stream, step), device.DropThreshold(d.Rate), 1 / (1 - float64(d.Rate)), float64(d.Jitter), d, ids(d.Samples)}
}

// apply multiplies x, the channels from..from+len(x)-1 of (position, sample,
// head), by 0 or 1/(1−Rate). All of them count from 0 in the global tensors.
func (m mask) apply(x []float64, position int64, sample int32, head, from int64) {
	var words [4]uint32
	for i := range x {
		channel := from + int64(i)
		if i == 0 || channel%4 == 0 {
			words = device.Philox(m.key, [4]uint32{uint32(channel / 4), uint32(position), uint32(sample), uint32(head)})
		}
		switch word := words[channel%4]; {
		case m.jitter != 0:
			x[i] *= 1 + m.jitter*(2*math.Ldexp(float64(word>>8), -24)-1)
		case word < m.threshold:
			x[i] = 0
		default:
			x[i] *= m.keep
		}
	}
}

// applyRow is apply to row r of a flattened [s, b] with channels along it.
func (m mask) applyRow(x []float64, r int64) {
	if m.on {
		b := int64(len(m.samples))
		m.apply(x, int64(m.drop.Position)+r/b, m.samples[r%b], 0, int64(m.drop.Channel))
	}
}

func (b *backend) DropoutAdd(a *device.DropoutAddArgs) {
	h := a.X.Last()
	bias, m := vector(a.Bias), newMask(&a.Drop)
	b.spread(a.X.Rows(), each(h), func(from, to int64) {
		x, residual := make([]float64, h), make([]float64, h)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			for i := range bias {
				x[i] += bias[i]
			}
			m.applyRow(x, r)
			if a.Residual.Given() {
				loadRow(residual, a.Residual, r)
				for i := range x {
					x[i] += residual[i]
				}
			}
			storeRow(a.Out, r, x)
		}
	})
}

func (b *backend) DropoutBackward(a *device.DropoutBackwardArgs) {
	h := a.DY.Last()
	m := newMask(&a.Drop)
	b.spread(a.DY.Rows(), each(h), func(from, to int64) {
		x := make([]float64, h)
		for r := from; r < to; r++ {
			loadRow(x, a.DY, r)
			m.applyRow(x, r)
			storeRow(a.DX, r, x)
		}
	})
}

// Uniform: the float of a word's top 24 bits.
func (b *backend) Uniform(a *device.UniformArgs) {
	key := device.StepKey(a.Stream, uint64(int64(one(a.Step, 0))))
	b.spread(a.Out.Len(), 1<<14, func(from, to int64) {
		v := make([]float64, to-from)
		var words [4]uint32
		for i := range v {
			n := uint64(from) + uint64(i)
			if i == 0 || n%4 == 0 {
				words = device.Philox(key, [4]uint32{uint32(n / 4), uint32(n / 4 >> 32), 0, 0})
			}
			v[i] = math.Ldexp(float64(words[n%4]>>8), -24)
		}
		store(a.Out, from, v)
	})
}
