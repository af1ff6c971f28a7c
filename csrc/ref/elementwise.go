package ref

import (
	"unsafe"

	"monotron/csrc/device"
)

// ColumnSum adds rows in order; tiles are columns.
func (b *backend) ColumnSum(a *device.ColumnSumArgs) {
	if a.Chunk > 0 {
		for i := range a.Out.Shape[0] {
			b.ColumnSum(&device.ColumnSumArgs{Out: a.Out.At(i), X: a.X.Leaf(i, int64(a.Chunk), int64(a.Batch))})
		}
		return
	}
	b.spread(a.X.Last(), 64, func(from, to int64) {
		total, x := make([]float64, to-from), make([]float64, to-from)
		for r := range a.X.Shape[0] {
			load(x, a.X, rowAt(a.X, r)+from)
			axpy(total, 1, x)
		}
		addTo(a.Out, from, total)
	})
}

func (b *backend) Add(a *device.AddArgs) {
	b.spread(a.Out.Len(), 1<<14, func(from, to int64) {
		x, y := make([]float64, to-from), make([]float64, to-from)
		load(x, a.A, from)
		load(y, a.B, from)
		axpy(x, 1, y)
		store(a.Out, from, x)
	})
}

// Copy converts; equal dtypes keep their bits.
func (b *backend) Copy(a *device.CopyArgs) {
	n := a.Dst.Last()
	dst, src := a.Dst, a.Src
	b.spread(dst.Rows(), each(n), func(from, to int64) {
		v := make([]float64, 1)
		step, size := [2]int64{dst.Stride[dst.Rank-1], src.Stride[src.Rank-1]}, dst.DType.Size()
		for r := from; r < to; r++ {
			at, of := rowAt(dst, r), rowAt(src, r)
			for i := range n {
				if dst.DType == src.DType {
					copy(unsafe.Slice((*byte)(unsafe.Add(dst.Data, (at+i*step[0])*size)), size), unsafe.Slice((*byte)(unsafe.Add(src.Data, (of+i*step[1])*size)), size))
					continue
				}
				load(v, src, of+i*step[1])
				store(dst, at+i*step[0], v)
			}
		}
	})
}

func (b *backend) Fill(a *device.FillArgs) {
	b.spread(a.Out.Len(), 1<<14, func(from, to int64) {
		v := make([]float64, to-from)
		for i := range v {
			v[i] = a.Value
		}
		store(a.Out, from, v)
	})
}
