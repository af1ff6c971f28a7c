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
	norm := float64(a.Stretch)*max(math.Sqrt(one(a.Stats, device.StatSquares)), float64(a.Eps)) + float64(a.Plus)
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

func (b *backend) NorMuon(a *device.NorMuonArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	m, n, eps := a.X.Shape[0], a.X.Shape[1], float64(a.Eps)
	x, v := vector(a.X), vector(a.V)
	along := func(i int64) int64 { // which mean an element is in
		if m >= n {
			return i / n
		}
		return i % n
	}
	means := make([]float64, len(v))
	for i := range x {
		means[along(int64(i))] += x[i] * x[i] / float64(min(m, n))
	}
	before, after, factors := 0.0, 0.0, make([]float64, len(v))
	for i, mean := range means {
		v[i] += (1 - float64(a.Beta2)) * (mean - v[i])
		factors[i] = 1 / math.Sqrt(max(v[i], eps))
		before, after = before+mean, after+mean*factors[i]*factors[i]
	}
	length := math.Sqrt(before*float64(min(m, n))) / max(math.Sqrt(after*float64(min(m, n))), eps)
	for i := range x {
		x[i] *= factors[along(int64(i))] * length
	}
	store(a.V, 0, v)
	store(a.X, 0, x)
}

func (b *backend) AdaMuon(a *device.AdaMuonArgs) {
	hyper := vector(a.Hyper)
	if hyper[device.HyperSkip] != 0 {
		return
	}
	b.spread(a.X.Len(), 1<<12, func(from, to int64) {
		x, v := stretch(a.X, from, to), stretch(a.V, from, to)
		for i := range x {
			v[i] += (1 - float64(a.Beta2)) * (x[i]*x[i] - v[i])
			x[i] /= math.Sqrt(v[i]) + float64(a.Eps)
		}
		store(a.V, from, v)
		store(a.X, from, x)
	})
}
