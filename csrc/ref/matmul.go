package ref

import (
	"sync"

	"monotron/csrc/device"
)

// A tile of C and the depth that is widened at a time: 64x256 sums, a 128x256
// panel of B and a 64x128 one of A stay in the second-level cache.
const (
	tileRows    = 64
	tileColumns = 256
	tileDepth   = 128
)

// tileWork is the memory of a tile, without its operands: small products would spend more time on zeroing fresh
// memory, and on collecting it, than on sums.
type tileWork struct {
	sums  [tileRows * tileColumns]float64
	left  [tileRows * tileDepth]float64    // a panel of A
	right [tileDepth * tileColumns]float64 // a panel of B
	line  [max(tileRows, tileColumns, tileDepth)]float64
}

var tileWorks = sync.Pool{New: func() any { return new(tileWork) }}

func (b *backend) Matmul(a *device.MatmulArgs) {
	if a.Grid.Given() {
		b.addLeaves(a)
		return
	}
	m, n := a.C.Shape[0], a.C.Shape[1]
	across := (n + tileColumns - 1) / tileColumns
	down := (m + tileRows - 1) / tileRows
	b.pool.Run(across*down, func(_ int, tile int64) {
		i, j := tile/across*tileRows, tile%across*tileColumns
		matmulTile(a, i, min(tileRows, m-i), j, min(tileColumns, n-j))
	})
}

// matmulTile makes rows i.. and columns j.. of C.
func matmulTile(a *device.MatmulArgs, i, rows, j, columns int64) {
	k := a.A.Shape[1]
	if a.TransA != 0 {
		k = a.A.Shape[0]
	}
	work := tileWorks.Get().(*tileWork)
	defer tileWorks.Put(work)
	sums := work.sums[:rows*columns]
	clear(sums)
	add := func(sums []float64, from, n int64) { // Σ over k from `from` on
		for end := from + n; from < end; from += tileDepth {
			depth := min(tileDepth, end-from)
			panel(work.left[:], a.A, a.TransA != 0, i, rows, from, depth, work.line[:])
			panel(work.right[:], a.B, a.TransB != 0, from, depth, j, columns, work.line[:])
			addProduct(sums, work.left[:], work.right[:], int(rows), int(depth), int(columns))
		}
	}
	if a.Leaves > 0 {
		leafSums(a, k, sums, add)
	} else {
		add(sums, 0, k)
	}
	finish(a, sums, i, rows, j, columns)
}

// panel widens rows i.. and columns j.. of op(t), row-major.
func panel(dst []float64, t device.Tensor, trans bool, i, rows, j, columns int64, line []float64) {
	if !trans {
		for r := range rows {
			load(dst[r*columns:(r+1)*columns], t, (i+r)*t.Stride[0]+j)
		}
		return
	}
	for c := range columns {
		load(line[:rows], t, (j+c)*t.Stride[0]+i)
		for r, x := range line[:rows] {
			dst[int64(r)*columns+c] = x
		}
	}
}

// addProduct: c [rows,columns] += a [rows,depth] · b [depth,columns]. Four steps
// of depth share a pass over a row of c; each is added on its own, in order.
func addProduct(c, a, b []float64, rows, depth, columns int) {
	for i := range rows {
		ci, ai := c[i*columns:(i+1)*columns], a[i*depth:(i+1)*depth]
		k := 0
		for ; k+4 <= depth; k += 4 {
			a0, a1, a2, a3 := ai[k], ai[k+1], ai[k+2], ai[k+3]
			b0 := b[k*columns:][:len(ci)]
			b1 := b[(k+1)*columns:][:len(ci)]
			b2 := b[(k+2)*columns:][:len(ci)]
			b3 := b[(k+3)*columns:][:len(ci)]
			for j, s := range ci {
				s += a0 * b0[j]
				s += a1 * b1[j]
				s += a2 * b2[j]
				s += a3 * b3[j]
				ci[j] = s
			}
		}
		for ; k < depth; k++ {
			a0, b0 := ai[k], b[k*columns:][:len(ci)]
			for j := range ci {
				ci[j] += a0 * b0[j]
			}
		}
	}
}

// epilogues but for none.
var epilogues = map[device.Epilogue]func(float64) float64{device.GeluTanhEpilogue: geluTanh, device.GeluErfEpilogue: geluErf}

// finish adds bias or the old C, applies the epilogue and stores the tile.
func finish(a *device.MatmulArgs, sums []float64, i, rows, j, columns int64) {
	other := make([]float64, columns)
	if a.Bias.Given() {
		load(other, a.Bias, j)
	}
	for r := range rows {
		row := sums[r*columns : (r+1)*columns]
		if a.Accumulate != 0 {
			load(other, a.C, (i+r)*a.C.Stride[0]+j)
		}
		for c, x := range other {
			row[c] += x
		}
		if a.Epilogue != device.NoEpilogue {
			store(a.Aux, (i+r)*a.Aux.Stride[0]+j, row)
			f := epilogues[a.Epilogue]
			for c, x := range row {
				row[c] = f(x)
			}
		}
		store(a.C, (i+r)*a.C.Stride[0]+j, row)
	}
}
