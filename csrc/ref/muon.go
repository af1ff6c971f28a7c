package ref

import (
	"math"

	"monotron/csrc/device"
)

func (b *backend) Momentum(a *device.MomentumArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	mu, scale := float64(a.Mu), hyper[device.HyperGradScale]
	b.spread(a.M.Len(), 1<<12, func(from, to int64) {
		m, g := stretch(a.M, from, to), stretch(a.Grad, from, to)
		for i := range m {
			g[i] *= scale
			m[i] = mu*m[i] + (1-mu)*g[i]
		}
		store(a.M, from, m)
		if !a.Out.Given() {
			return
		}
		for i := range m {
			g[i] = (1-mu)*g[i] + mu*m[i]
		}
		store(a.Out, from, g)
	})
}

func (b *backend) Normalize(a *device.NormalizeArgs) {
	norm := max(math.Sqrt(one(a.Stats, device.StatSquares)), float64(a.Eps))
	b.eachOf(a.Out, a.X, func(x []float64, _ int64) {
		for i := range x {
			x[i] /= norm
		}
	})
}

func (b *backend) Polynomial(a *device.PolynomialArgs) {
	n := a.X.Last()
	b.eachOf(a.Out, a.X, func(x []float64, from int64) {
		y := make([]float64, len(x))
		if a.Y.Given() {
			load(y, a.Y, from)
		}
		for i := range x {
			x[i] = float64(a.B)*x[i] + float64(a.C)*y[i]
			if at := from + int64(i); at/n == at%n {
				x[i] += float64(a.A)
			}
		}
	})
}

func (b *backend) Follow(a *device.FollowArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	lr, decay := hyper[device.HyperLR], hyper[device.HyperWeightDecay]*float64(a.Decay)
	b.spread(a.Param.Len(), 1<<12, func(from, to int64) {
		p, u := stretch(a.Param, from, to), stretch(a.Direction, from, to)
		for i := range p {
			p[i] -= lr * (float64(a.By)*u[i] + decay*p[i])
		}
		storeParam(a.Param, a.Model, from, p)
	})
}
