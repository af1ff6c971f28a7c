package ref

import "monotron/csrc/device"

// conv is a convolution of one sample.
type conv struct {
	x, w     device.Tensor
	taps     []float64 // [channels, kernel]
	bias     []float64 // [channels]
	kernel   int64
	sample   int64
	batch    int64
	docStart []int32 // nil: 0
}

func newConv(x, w, bias, docStart device.Tensor, batch int32, sample int64) *conv {
	c := &conv{x: x, w: w, taps: vector(w), bias: biasOf(bias, x.Last()), kernel: w.Last(), sample: sample, batch: int64(batch)}
	if docStart.Given() {
		c.docStart = ids(docStart.At(sample))
	}
	return c
}

// biasOf are the biases of n channels; none: zeros.
func biasOf(t device.Tensor, n int64) []float64 {
	if !t.Given() {
		return make([]float64, n)
	}
	return vector(t)
}

func (c *conv) positions() int64 { return c.x.Shape[0] / c.batch }

// first is where the document of a position begins.
func (c *conv) first(position int64) int64 {
	if c.docStart == nil {
		return 0
	}
	return int64(c.docStart[position])
}

// sums are the convolutions at a position, before SiLU; x is space for a row.
func (c *conv) sums(z, x []float64, position int64) {
	copy(z, c.bias)
	for j := range c.kernel {
		if from := position - c.kernel + 1 + j; from >= c.first(position) {
			loadRow(x, c.x, from*c.batch+c.sample)
			for i := range z {
				z[i] += c.taps[int64(i)*c.kernel+j] * x[i]
			}
		}
	}
}

// unitOf is SiLU of a sum, with plain the sum, and its slope.
func unitOf(z float64, plain int32) (y, slope float64) {
	if plain != 0 {
		return z, 1
	}
	return sigmoidUnit(z, 1)
}

func (b *backend) CausalConvForward(a *device.CausalConvForwardArgs) {
	b.pool.Run(int64(a.Batch), func(_ int, sample int64) {
		c := newConv(a.X, a.W, a.Bias, a.DocStart, a.Batch, sample)
		z, x := make([]float64, a.X.Last()), make([]float64, a.X.Last())
		for position := range c.positions() {
			c.sums(z, x, position)
			for i := range z {
				z[i], _ = unitOf(z[i], a.Plain)
			}
			storeRow(a.Y, position*c.batch+sample, z)
		}
	})
}

// CausalConvBackward goes through samples in order: the sum of DW has one order.
func (b *backend) CausalConvBackward(a *device.CausalConvBackwardArgs) {
	n, k := a.X.Last(), a.W.Last()
	dw, dbias, z, x, dz := make([]float64, n*k), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for sample := range int64(a.Batch) {
		c := newConv(a.X, a.W, a.Bias, a.DocStart, a.Batch, sample)
		dx := make([]float64, c.positions()*n)
		for position := range c.positions() {
			// z: the sums before the activation, again; dz = dy·act'(z).
			c.sums(z, x, position)
			loadRow(dz, a.DY, position*c.batch+sample)
			for i := range z {
				_, slope := unitOf(z[i], a.Plain)
				dz[i] *= slope
			}
			axpy(dbias, 1, dz)
			// Tap j of position t read position t-k+1+j, unless that is in another document.
			for j := range k {
				from := position - k + 1 + j
				if from < c.first(position) {
					continue
				}
				loadRow(x, a.X, from*c.batch+sample)
				for i := range n {
					dw[i*k+j] += dz[i] * x[i]
					dx[from*n+i] += dz[i] * c.taps[i*k+j]
				}
			}
		}
		for position := range c.positions() {
			storeRow(a.DX, position*c.batch+sample, dx[position*n:][:n])
		}
	}
	addTo(a.DW, 0, dw)
	if a.DBias.Given() {
		addTo(a.DBias, 0, dbias)
	}
}

func (b *backend) GateForward(a *device.GateForwardArgs) {
	n := a.X.Last()
	b.spread(a.X.Rows(), each(n), func(from, to int64) {
		x, g := make([]float64, n), make([]float64, n)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			loadRow(g, a.G, r)
			for i := range x {
				factor, _ := gateFactor(g[i], a.Silu, a.Plain)
				x[i] *= factor
			}
			storeRow(a.Y, r, x)
		}
	})
}

func (b *backend) GateBackward(a *device.GateBackwardArgs) {
	n := a.X.Last()
	b.spread(a.X.Rows(), each(n), func(from, to int64) {
		x, g, dy := make([]float64, n), make([]float64, n), make([]float64, n)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			loadRow(g, a.G, r)
			loadRow(dy, a.DY, r)
			for i := range x {
				factor, slope := gateFactor(g[i], a.Silu, a.Plain)
				g[i] = dy[i] * x[i] * slope
				dy[i] *= factor
			}
			storeRow(a.DX, r, dy)
			storeRow(a.DG, r, g)
		}
	})
}

// gateFactor is what a gate multiplies by, and its slope.
func gateFactor(g float64, silu, plain int32) (factor, slope float64) {
	switch {
	case plain != 0:
		return g, 1
	case silu != 0:
		return sigmoidUnit(g, 1)
	}
	s := sigmoid(g)
	return s, s * (1 - s)
}
