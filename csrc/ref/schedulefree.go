package ref

import (
	"math"

	"monotron/csrc/device"
)

func (b *backend) ScheduleFree(a *device.ScheduleFreeArgs) {
	hyper, rates := vector(a.Hyper), vector(a.Rates)
	b1, b2, eps := float64(a.Beta1), float64(a.Beta2), float64(a.Eps)
	average, c2, skip := rates[device.RateAverage], rates[device.RateCorrection2], hyper[device.HyperSkip] != 0
	b.segments(a.Segments, a.Mults, a.X.Len(), func(from, to int64, lrMult, wdMult float64) {
		lr, decay := rates[device.RateLR]*lrMult, rates[device.RateWeightDecay]*wdMult
		x, z, v, g := stretch(a.X, from, to), stretch(a.Z, from, to), stretch(a.V, from, to), stretch(a.Grad, from, to)
		if skip {
			storeParam(a.X, a.Model, from, x)
			return
		}
		for i := range x {
			y, gi := b1*x[i]+(1-b1)*z[i], g[i]*hyper[device.HyperGradScale]
			v[i] = b2*v[i] + (1-b2)*gi*gi
			z[i] -= lr * (gi/(math.Sqrt(v[i]/c2)+eps) + decay*y)
			x[i] = (1-average)*x[i] + average*z[i]
		}
		store(a.Z, from, z)
		store(a.V, from, v)
		storeParam(a.X, a.Model, from, x)
	})
}

func (b *backend) Blend(a *device.BlendArgs) {
	b.eachOf(a.Out, a.X, func(x []float64, from int64) {
		y := make([]float64, len(x))
		load(y, a.Y, from)
		for i := range x {
			x[i] = float64(a.A)*x[i] + (1-float64(a.A))*y[i]
		}
	})
}
