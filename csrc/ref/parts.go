package ref

import (
	"math"

	"monotron/csrc/device"
)

func (b *backend) Scale(a *device.ScaleArgs) {
	by := float64(a.By)
	if a.Factor.Given() {
		by *= vector(a.Factor)[0]
	}
	b.eachOf(a.Out, a.X, func(x []float64, _ int64) { times(x, by) })
}

func (b *backend) SoftCap(a *device.SoftCapArgs) {
	limit := float64(a.Cap)
	b.eachOf(a.Out, a.X, func(x []float64, _ int64) {
		for i := range x {
			x[i] = limit * math.Tanh(x[i]/limit)
		}
	})
}

func (b *backend) SoftCapBackward(a *device.SoftCapBackwardArgs) {
	b.eachOf(a.DX, a.DY, func(x []float64, from int64) {
		y := make([]float64, len(x))
		load(y, a.Y, from)
		for i := range x {
			t := y[i] / float64(a.Cap)
			x[i] *= 1 - t*t
		}
	})
}

// eachOf sets out = f(x) by stretches; f gets where its stretch begins.
func (b *backend) eachOf(out, x device.Tensor, f func(x []float64, from int64)) {
	b.spread(out.Len(), 1<<14, func(from, to int64) {
		v := make([]float64, to-from)
		load(v, x, from)
		f(v, from)
		store(out, from, v)
	})
}

// AttentionSink multiplies a row of O by 1/(1+e^(sink−LSE)).
func (b *backend) AttentionSink(a *device.AttentionSinkArgs) {
	sinks := vector(a.Sinks)
	batch, heads, sq := a.LSE.Shape[0], a.LSE.Shape[1], a.LSE.Shape[2]
	b.pool.Run(batch*heads, func(_ int, tile int64) {
		o, sink := make([]float64, a.O.Last()), sinks[tile%heads]
		for i := range sq {
			at, row := tile*sq+i, rowAt(a.O, (i*batch+tile/heads)*heads+tile%heads)
			lse := one(a.LSE, at)
			load(o, a.O, row)
			times(o, 1/(1+math.Exp(sink-lse)))
			store(a.O, row, o)
			top := math.Max(lse, sink)
			setOne(a.LSE, at, top+math.Log(math.Exp(lse-top)+math.Exp(sink-top)))
		}
	})
}

// AttentionSinkBackward sums over samples and queries in order; a tile is a head.
func (b *backend) AttentionSinkBackward(a *device.AttentionSinkBackwardArgs) {
	sinks := vector(a.Sinks)
	batch, heads, sq := a.LSE.Shape[0], a.LSE.Shape[1], a.LSE.Shape[2]
	b.pool.Run(heads, func(_ int, head int64) {
		o, do, total := make([]float64, a.O.Last()), make([]float64, a.O.Last()), 0.0
		for sample := range batch {
			for i := range sq {
				row := (i*batch+sample)*heads + head
				loadRow(o, a.O, row)
				loadRow(do, a.DO, row)
				total -= math.Exp(sinks[head]-one(a.LSE, (sample*heads+head)*sq+i)) * dot(o, do)
			}
		}
		addTo(a.DSinks, head, []float64{total})
	})
}
