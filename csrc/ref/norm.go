package ref

import (
	"math"

	"monotron/csrc/device"
)

// NormForward is layer normalisation (Ba et al., arXiv 1607.06450) or RMSNorm
// (Zhang and Sennrich, arXiv 1910.07467).
func (b *backend) NormForward(a *device.NormForwardArgs) {
	h := a.X.Last()
	gamma, beta := weights(a.Gamma, a.OnePlus), vector(a.Beta)
	b.spread(a.X.Rows(), each(h), func(from, to int64) {
		x := make([]float64, h)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			// Mean (0 for RMSNorm) and 1/√(variance + eps), in f64.
			mean := 0.0
			if a.Kind == device.LayerNormKind {
				mean = sum(x) / float64(h)
			}
			squares := 0.0
			for i := range x {
				x[i] -= mean
				squares += x[i] * x[i]
			}
			rstd := 1 / math.Sqrt(squares/float64(h)+float64(a.Eps))
			// y = (x - mean)·rstd·gamma + beta
			for i := range x {
				x[i] *= rstd * gamma[i]
				if beta != nil {
					x[i] += beta[i]
				}
			}
			storeRow(a.Y, r, x)
			setOne(a.Rstd, r, rstd)
			if a.Mean.Given() {
				setOne(a.Mean, r, mean)
			}
		}
	})
}

// NormBackward: with x̂ = (x−mean)·rstd and g = dy·gamma,
// dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), without mean(g) for RMSNorm;
// dgamma += Σ dy·x̂, dbeta += Σ dy. These come first: dx may overwrite dy.
func (b *backend) NormBackward(a *device.NormBackwardArgs) {
	normWeightGrads(b, a)
	h := a.X.Last()
	gamma := weights(a.Gamma, a.OnePlus)
	b.spread(a.X.Rows(), each(h), func(from, to int64) {
		x, g, rest := make([]float64, h), make([]float64, h), make([]float64, h)
		for r := from; r < to; r++ {
			rstd := normalized(x, a, r, 0)
			loadRow(g, a.DY, r)
			if a.Residual.Given() {
				loadRow(rest, a.Residual, r)
			}
			// x has x̂ by now, g becomes dy·gamma; rest is the gradient by the residual, which is added to dx.
			meanG, meanGX := 0.0, 0.0
			for i := range g {
				g[i] *= gamma[i]
				meanG += g[i]
				meanGX += g[i] * x[i]
			}
			meanG /= float64(h)
			meanGX /= float64(h)
			if a.Kind == device.RMSNormKind {
				meanG = 0
			}
			for i := range g {
				g[i] = rstd*(g[i]-meanG-x[i]*meanGX) + rest[i]
			}
			storeRow(a.DX, r, g)
		}
	})
}

// normWeightGrads sums columns over rows in order; tiles are columns.
func normWeightGrads(b *backend, a *device.NormBackwardArgs) {
	if a.Chunk > 0 {
		for i := range a.DGamma.Shape[0] {
			one, of := *a, func(t device.Tensor) device.Tensor { return t.Leaf(i, int64(a.Chunk), int64(a.Batch)) }
			one.Chunk, one.X, one.DY, one.Mean, one.Rstd, one.DGamma = 0, of(a.X), of(a.DY), of(a.Mean), of(a.Rstd), a.DGamma.At(i)
			if a.DBeta.Given() {
				one.DBeta = a.DBeta.At(i)
			}
			normWeightGrads(b, &one)
		}
		return
	}
	rows, h := a.X.Rows(), a.X.Last()
	b.spread(h, 128, func(from, to int64) {
		n := to - from
		x, dy := make([]float64, n), make([]float64, n)
		dgamma, dbeta := make([]float64, n), make([]float64, n)
		for r := range rows {
			normalized(x, a, r, from)
			load(dy, a.DY, rowAt(a.DY, r)+from)
			for i := range dy {
				dgamma[i] += dy[i] * x[i]
				dbeta[i] += dy[i]
			}
		}
		addTo(a.DGamma, from, dgamma)
		if a.DBeta.Given() {
			addTo(a.DBeta, from, dbeta)
		}
	})
}

// normalized makes x̂ of row r from column `from` on and returns the row's rstd.
func normalized(x []float64, a *device.NormBackwardArgs, r, from int64) float64 {
	load(x, a.X, rowAt(a.X, r)+from)
	rstd, mean := one(a.Rstd, r*a.Rstd.Stride[0]), 0.0 // a leaf's lie apart
	if a.Kind == device.LayerNormKind {
		mean = one(a.Mean, r*a.Mean.Stride[0])
	}
	for i := range x {
		x[i] = (x[i] - mean) * rstd
	}
	return rstd
}

func weights(gamma device.Tensor, onePlus int32) []float64 {
	w := vector(gamma)
	for i := range w {
		w[i] += float64(onePlus)
	}
	return w
}

func sum(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

// addTo: elements of t from `at` on += x.
func addTo(t device.Tensor, at int64, x []float64) {
	old := make([]float64, len(x))
	load(old, t, at)
	for i := range x {
		old[i] += x[i]
	}
	store(t, at, old)
}
