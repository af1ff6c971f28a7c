package ref

import (
	"math"
	"unsafe"

	"monotron/csrc/device"
)

// onGrid is x rounded to the nearest multiple of grid, a power of two, half to even; of no grid x.
func onGrid(x, grid float64) float64 {
	if grid == 0 {
		return x
	}
	return math.RoundToEven(x/grid) * grid
}

// GridAdd adds what is rounded, element by element.
func (b *backend) GridAdd(a *device.GridAddArgs) {
	grid := 0.0
	if a.Grid.Given() {
		grid = one(a.Grid, 0)
	}
	n := a.Sum.Len()
	b.spread(n, 1<<14, func(from, to int64) {
		x := make([]float64, to-from)
		for row := int64(0); row < a.X.Len(); row += n {
			load(x, a.X, row+from)
			for i := range x {
				x[i] = onGrid(x[i], grid)
			}
			addTo(a.Sum, from, x)
		}
	})
	if a.Peak.Given() {
		raisePeak(a.Peak, vector(a.X))
	}
}

// raisePeak makes the larger of peak and the magnitudes of x of peak.
func raisePeak(peak device.Tensor, x []float64) {
	bits := (*uint32)(peak.Data) // of magnitudes: as integers they are in order, NaN the largest
	for _, v := range x {
		*bits = max(*bits, math.Float32bits(float32(v))&^(1<<31))
	}
}

// ExactSquares cuts each square into limbs, which are added without rounding.
func (b *backend) ExactSquares(a *device.ExactSquaresArgs) {
	var total [device.Limbs]float64
	step := math.Ldexp(1, int(-a.Bits))
	for _, v := range vector(a.X) {
		rest, grid := v*a.Scale*(v*a.Scale), 1.0
		for i := range total {
			grid *= step
			limb := onGrid(rest, grid)
			total[i] += limb
			rest -= limb
		}
	}
	addTo(a.Out, 0, total[:])
}

// embedExactly is EmbeddingBackward to a table of f64: row by row as GridAdd.
func (b *backend) embedExactly(a *device.EmbeddingBackwardArgs, where map[int64][]int64) {
	grid, h := one(a.Grid, 0), a.DOut.Last()
	dy := make([]float64, h)
	for row, tokens := range where {
		for _, r := range tokens {
			loadRow(dy, a.DOut, r)
			raisePeak(a.Peak, dy)
			for i := range dy {
				dy[i] = onGrid(dy[i], grid)
			}
			addTo(a.DTable, rowAt(a.DTable, row), dy)
		}
	}
}

// weightedSum is the sum of x·w, each rounded to a multiple of 2^-bits where bits are given.
func weightedSum(x, w []float64, bits int64) (total float64) {
	if bits == 0 {
		return dot(x, w)
	}
	grid := math.Ldexp(1, int(-bits))
	for i := range x {
		total += onGrid(x[i]*w[i], grid)
	}
	return total
}

// leafSums replaces sums over k by what MatmulArgs says of Leaves: tile's sums of each leaf,
// rounded to f32, and added as a tree.
func leafSums(a *device.MatmulArgs, k int64, sums []float64, add func(to []float64, from, n int64)) {
	stretches, leaves := int64(max(1, a.Stretches)), int64(a.Leaves)
	part := k / stretches / leaves
	var tree [][]float64 // of 2^i leaves; nil: none
	for leaf := range leaves {
		one := make([]float64, len(sums))
		for s := range stretches {
			add(one, s*k/stretches+leaf*part, part)
		}
		narrow(a, one)
		level := 0
		for ; level < len(tree) && tree[level] != nil; level++ {
			for i, x := range tree[level] {
				one[i] += x
			}
			narrow(a, one)
			tree[level] = nil
		}
		if level == len(tree) {
			tree = append(tree, nil)
		}
		tree[level] = one
	}
	copy(sums, tree[len(tree)-1])
}

// narrow rounds partial sums to f32, in which they are exchanged; a device of f64 keeps them.
func narrow(a *device.MatmulArgs, x []float64) {
	if a.A.DType != device.F64 {
		for i := range x {
			x[i] = float64(float32(x[i]))
		}
	}
}

// addLeaves is a Matmul to a grid: of each leaf by itself, rounded to f32, then added.
func (b *backend) addLeaves(a *device.MatmulArgs) {
	batch, chunk := int64(a.Batch), int64(a.Chunk)
	rows := func(t device.Tensor, first int64) device.Tensor {
		return device.Strided(t.Slice(0, first, 1).Data, t.DType, []int64{chunk, t.Shape[1]}, []int64{batch * t.Stride[0], 1})
	}
	for at := int64(0); at < a.A.Shape[0]; at += batch * chunk {
		for sample := range batch {
			b.addLeaf(a.C, rows(a.A, at+sample), rows(a.B, at+sample), a.Grid, a.Peak)
		}
	}
}

// addLeaf adds the product xᵀ·y of one leaf's rows, rounded to f32, to sum [m,n] on a grid.
func (b *backend) addLeaf(sum, x, y, grid, peak device.Tensor) {
	leaf := narrowBuffer(sum.Shape[0], sum.Shape[1])
	b.Matmul(&device.MatmulArgs{C: leaf, A: x, B: y, TransA: 1, Leaves: 1})
	b.GridAdd(&device.GridAddArgs{Sum: sum, X: leaf, Grid: grid, Peak: peak})
}

// narrowBuffer is a tensor of f32 zeros.
func narrowBuffer(shape ...int64) device.Tensor {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return device.View(unsafe.Pointer(unsafe.SliceData(make([]float32, n))), device.F32, shape...)
}
