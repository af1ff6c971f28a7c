package ref

import (
	"math"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
)

func (b *backend) ActivationForward(a *device.ActivationForwardArgs) {
	f, weights := a.Y.Last(), vector(a.Weights)
	b.spread(a.Y.Rows(), each(f), func(from, to int64) {
		x, y := make([]float64, a.X.Last()), make([]float64, f)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			activated(y, x, a.Kind, a.Limit, a.Offset)
			if weights != nil {
				roundTo(y, a.Y.DType)
				times(y, weights[r])
			}
			storeRow(a.Y, r, y)
		}
	})
}

// activated sets y = act(x), x twice as long where it is gated.
func activated(y, x []float64, kind device.Activation, limit, offset float32) {
	for i := range y {
		gate, _ := upTo(x[i], limit, math.Inf(-1))
		y[i], _ = formulas[kind](gate)
		if kind.Gated() {
			up, _ := upTo(x[len(y)+i], limit, -float64(limit))
			y[i] *= up + float64(offset)
		}
	}
}

// upTo is x between least and limit, and its slope: 0 outside. A limit of 0 is none.
func upTo(x float64, limit float32, least float64) (y, slope float64) {
	switch {
	case limit > 0 && x > float64(limit):
		return float64(limit), 0
	case limit > 0 && x < least:
		return least, 0
	}
	return x, 1
}

func (b *backend) ActivationBackward(a *device.ActivationBackwardArgs) {
	f, formula, weights := a.DY.Last(), formulas[a.Kind], vector(a.Weights)
	b.spread(a.DY.Rows(), each(f), func(from, to int64) {
		x, dy, y := make([]float64, a.X.Last()), make([]float64, f), make([]float64, f)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			loadRow(dy, a.DY, r)
			// y = weight·act(x): dweight = Σ dy·act(x), with act(x) rounded as forward gave it; then dy·weight.
			if weights != nil {
				activated(y, x, a.Kind, a.Limit, a.Offset)
				roundTo(y, a.X.DType)
				storeParts(a.DWeights, r, dy, y)
				times(dy, weights[r])
				roundTo(dy, a.X.DType)
			}
			for i := range dy {
				// y = act(gate)·(up + offset), both limited: outside of a limit the slope is 0. x becomes dx.
				gate, inside := upTo(x[i], a.Limit, math.Inf(-1))
				y, slope := formula(gate)
				dx := dy[i] * slope * inside
				if a.Kind.Gated() {
					up, within := upTo(x[f+int64(i)], a.Limit, -float64(a.Limit))
					dx *= up + float64(a.Offset)
					x[f+int64(i)] = dy[i] * y * within
				}
				x[i] = dx
			}
			storeRow(a.DX, r, x)
		}
	})
}

// storeParts sets row r of dweights to the sums of dy·y: of all of them, or of each part's.
func storeParts(dweights device.Tensor, r int64, dy, y []float64) {
	parts := 1
	if dweights.Rank == 2 {
		parts = int(dweights.Shape[0])
	}
	for part := range parts {
		from, to := part*len(y)/parts, (part+1)*len(y)/parts
		setOne(dweights.Reshape(dweights.Len()), int64(part)*dweights.Last()+r, dot(dy[from:to], y[from:to]))
	}
}

// formulas are the non-linearities (of the first half, where gated) and their slopes.
var formulas = map[device.Activation]func(x float64) (y, slope float64){
	activations.GeluTanh:    func(x float64) (y, slope float64) { return geluTanh(x), geluTanhSlope(x) },
	activations.GeluErf:     func(x float64) (y, slope float64) { return geluErf(x), geluErfSlope(x) },
	activations.SquaredRelu: squaredRelu,
	activations.Swiglu:      func(x float64) (y, slope float64) { return sigmoidUnit(x, 1) },
	activations.Geglu:       func(x float64) (y, slope float64) { return geluTanh(x), geluTanhSlope(x) },
	activations.Relu:        relu,
	activations.QuickGeglu:  func(x float64) (y, slope float64) { return sigmoidUnit(x, 1.702) },
}

func relu(x float64) (y, slope float64) {
	if x > 0 {
		return x, 1
	}
	return math.Max(x, 0), 0 // NaN stays
}

func squaredRelu(x float64) (y, slope float64) {
	p := math.Max(x, 0) // NaN stays
	return p * p, 2 * p
}

const (
	gelu0 = 0.7978845608028654 // √(2/π)
	gelu1 = 0.044715
)

// geluTanh is GELU's tanh form (Hendrycks and Gimpel, arXiv 1606.08415).
func geluTanh(x float64) float64 { return 0.5 * x * (1 + math.Tanh(gelu0*(x+gelu1*x*x*x))) }

func geluTanhSlope(x float64) float64 {
	t := math.Tanh(gelu0 * (x + gelu1*x*x*x))
	return 0.5*(1+t) + 0.5*x*(1-t*t)*gelu0*(1+3*gelu1*x*x)
}

func geluErf(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) }

func geluErfSlope(x float64) float64 {
	return 0.5*math.Erfc(-x/math.Sqrt2) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
}

// sigmoidUnit is x·sigmoid(ax) and its slope.
func sigmoidUnit(x, a float64) (y, slope float64) {
	s := 1 / (1 + math.Exp(-a*x))
	return x * s, s + a*x*s*(1-s)
}
