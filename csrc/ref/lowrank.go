package ref

import "monotron/csrc/device"

// LowRankAdd makes t = Scale·x·Aᵀ [rank] of a row and adds t·op(B) to the row of Y.
func (b *backend) LowRankAdd(a *device.LowRankAddArgs) {
	rank, out := a.B.Shape[0], a.B.Shape[1]
	if a.TransB != 0 {
		rank, out = out, rank
	}
	down, up := []float64(nil), matrix(a.B)
	if a.A.Given() {
		down = matrix(a.A)
	}
	in := a.X.Last()
	b.spread(a.X.Shape[0], each(out), func(from, to int64) {
		x, t, kept, sums := make([]float64, in), make([]float64, rank), make([]float64, rank), make([]float64, out)
		for row := from; row < to; row++ {
			loadRow(x, a.X, row)
			if down == nil {
				copy(t, x)
			} else {
				for k := range t {
					t[k] = dot(x, down[int64(k)*in:][:in])
				}
			}
			if a.T.Given() {
				for k := range t {
					kept[k] = float64(a.Scale) * t[k]
				}
				storeRow(a.T, row, kept)
			}
			clear(sums)
			for k, scaled := range t {
				for j := range sums {
					at := int64(k)*out + int64(j)
					if a.TransB != 0 {
						at = int64(j)*rank + int64(k)
					}
					sums[j] += float64(a.Scale) * scaled * up[at]
				}
			}
			// The row's columns, a stretch of Y at a time.
			stretches, size := int64(1), out
			if a.Y.Rank == 3 {
				stretches, size = a.Y.Shape[1], a.Y.Shape[2]
			}
			for g := range stretches {
				at := row * a.Y.Stride[0]
				if a.Y.Rank == 3 {
					at += g * a.Y.Stride[1]
				}
				addTo(a.Y, at, sums[g*size:][:size])
			}
		}
	})
}

// matrix is a matrix's rows one behind another.
func matrix(t device.Tensor) []float64 {
	rows, columns := t.Shape[0], t.Shape[1]
	out := make([]float64, rows*columns)
	for i := range rows {
		loadRow(out[i*columns:][:columns], t, i)
	}
	return out
}
