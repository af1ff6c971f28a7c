//go:build cgo

package cuda_test

import (
	"math/rand/v2"
	"testing"

	"monotron/csrc/device"
)

// Claim (op_embedding.go): a row of the table gets its tokens' gradients added in the order of
// tokens, and their sum added to its earlier value, digit for digit, however many tokens there are.
func TestEmbeddingGradientsInOrder(t *testing.T) {
	d := open(t)
	defer d.Close()
	for _, c := range []struct {
		tokens, ids, start, rows int64
	}{{1, 2, 0, 2}, {63, 3, 0, 3}, {2048, 40, 5, 30}, {2049, 40, 30, 30}, {16385, 50257, 12000, 13000}, {131072, 50257, 0, 50304}} {
		if c.tokens > 20000 && testing.Short() {
			continue
		}
		r := rand.New(rand.NewPCG(uint64(c.tokens), 1))
		ids, dout, table := make([]int32, c.tokens), make([]float32, c.tokens*5), make([]float32, c.rows*5)
		for i := range ids {
			if ids[i] = int32(r.Int64N(c.ids)); i%3 == 0 { // some words are frequent
				ids[i] = int32(r.Int64N(min(c.ids, 4)) * c.ids / 4)
			}
		}
		for _, x := range [][]float32{dout, table} {
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
		}
		got := embeddingGradient(d, ids, c.start, dout, table)
		for i, want := range addedInOrder(ids, int32(c.start), dout, table) {
			if got[i] != want {
				t.Fatalf("%d tokens: row %d, column %d is %g, want %g (%v)", c.tokens, i/5, i%5, got[i], want, d.Err())
			}
		}
	}
}

// embeddingGradient is the table [rows, 5] behind the op.
func embeddingGradient(d *device.Device, ids []int32, start int64, dout, table []float32) []float32 {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	a := device.EmbeddingBackwardArgs{DTable: s.Alloc(device.F32, int64(len(table)/5), 5), DOut: s.Alloc(device.F32, int64(len(ids)), 5), IDs: s.Alloc(device.I32, int64(len(ids))), Start: start}
	device.WriteSlice(d, a.DTable, table)
	device.WriteSlice(d, a.DOut, dout)
	device.WriteSlice(d, a.IDs, ids)
	d.EmbeddingBackward(a)
	return device.ReadSlice[float32](d, a.DTable)
}

// addedInOrder is the same by one loop.
func addedInOrder(ids []int32, start int32, dout, table []float32) []float32 {
	sums := make([]float32, len(table))
	for token, id := range ids {
		if row := int(id - start); row >= 0 && row < len(table)/5 {
			for c := range 5 {
				sums[row*5+c] += dout[token*5+c]
			}
		}
	}
	for i, old := range table {
		sums[i] += old
	}
	return sums
}
