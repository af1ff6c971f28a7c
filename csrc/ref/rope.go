package ref

import "monotron/csrc/device"

// Rope rotates pairs of channels (Su et al., arXiv 2104.09864).
func (b *backend) Rope(a *device.RopeArgs) {
	positions := ids(a.Positions)
	half := int64(a.RotDims) / 2
	heads := a.X.Shape[1] * a.X.Shape[2]
	b.spread(a.X.Shape[0], each(heads*a.X.Last()), func(from, to int64) {
		x, cos, sin := make([]float64, 2*half), make([]float64, half), make([]float64, half)
		for token := from; token < to; token++ {
			loadRow(cos, a.Cos, int64(positions[token]))
			loadRow(sin, a.Sin, int64(positions[token]))
			for h := range heads {
				at := rowAt(a.X, token*heads+h)
				load(x, a.X, at)
				rotate(x, cos, sin, a.Interleaved != 0, a.Inverse != 0)
				store(a.X, at, x)
			}
		}
	})
}

func rotate(x, cos, sin []float64, interleaved, inverse bool) {
	for i := range cos {
		j, k := i, i+len(cos)
		if interleaved {
			j, k = 2*i, 2*i+1
		}
		c, s := cos[i], sin[i]
		if inverse {
			s = -s
		}
		x[j], x[k] = x[j]*c-x[k]*s, x[k]*c+x[j]*s
	}
}
