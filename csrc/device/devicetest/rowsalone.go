package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/drawn"
)

// RowsAlone checks what Matmul's ByRow, LowRankAdd, PagedAttention and GroupedMatmul promise: a row has
// the same bits alone as among others, wherever it stands among them.
func RowsAlone(t *testing.T, dev *device.Device) {
	groupedRowsAlone(t, dev)
	deltaAlone(t, dev)
	type alone struct {
		name  string
		check func(*testing.T)
	}
	var all []alone
	for _, d := range valueTypes {
		for _, k := range []int64{1, 5, 48, 768, 1100} {
			all = append(all, alone{fmt.Sprint(d, " matmul of depth ", k), func(t *testing.T) { matmulByRow(t, dev, d, k) }},
				alone{fmt.Sprint(d, " low-rank addition of depth ", k), func(t *testing.T) { lowRankByRow(t, dev, d, k) }})
		}
		for _, window := range []int32{-1, 20} {
			all = append(all, alone{fmt.Sprint(d, " paged attention, window ", window), func(t *testing.T) { pagedByRow(t, dev, d, window, false) }},
				alone{fmt.Sprint(d, " paged attention whose values are keys, window ", window), func(t *testing.T) { pagedByRow(t, dev, d, window, true) }})
		}
	}
	for _, c := range drawn.Part(t, all, len(all)/4) {
		t.Run(c.name, c.check)
	}
}

func random(dev *device.Device, s *device.Scope, r *rand.Rand, d device.DType, shape ...int64) device.Tensor {
	x := s.Alloc(d, shape...)
	values := make([]float64, x.Len())
	for i := range values {
		values[i] = r.NormFloat64()
	}
	dev.Write(x, device.FromFloat64(d, values))
	return x
}

func readBytes(dev *device.Device, t device.Tensor) []byte {
	out := make([]byte, t.Bytes())
	dev.Read(out, t)
	return out
}

func lowRankByRow(t *testing.T, dev *device.Device, d device.DType, k int64) {
	const rows, rank, n = 150, 16, 133
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(uint64(k), 2))
	x, a, b, y := random(dev, s, r, d, rows, k), random(dev, s, r, d, rank, k), random(dev, s, r, d, n, rank), random(dev, s, r, d, rows, n)
	turned := s.Alloc(d, rank, n) // B, the other way
	from, to, size := readBytes(dev, b), make([]byte, turned.Bytes()), int(d.Size())
	for i := range n {
		for k := range rank {
			copy(to[(k*n+i)*size:][:size], from[(i*rank+k)*size:])
		}
	}
	dev.Write(turned, to)
	added := func(from, rows int64, b device.Tensor, transB int32) []byte {
		out := s.Alloc(d, rows, n)
		dev.Copy(out, y.Slice(0, from, rows))
		dev.LowRankAdd(device.LowRankAddArgs{Y: out, X: x.Slice(0, from, rows), A: a, B: b, TransB: transB, Scale: 0.75})
		return readBytes(dev, out)
	}
	all := added(0, rows, b, 1)
	for _, c := range []struct {
		b      device.Tensor
		transB int32
	}{{b, 1}, {turned, 0}} {
		sameAlone(t, all, rows, func(from, rows int64) []byte { return added(from, rows, c.b, c.transB) })
	}
}

func matmulByRow(t *testing.T, dev *device.Device, d device.DType, k int64) {
	const rows, n = 150, 133
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(uint64(k), 1))
	a, b, bias := random(dev, s, r, d, rows, k), random(dev, s, r, d, n, k), random(dev, s, r, d, n)
	product := func(from, rows int64) []byte {
		c, aux := s.Alloc(d, rows, n), s.Alloc(d, rows, n)
		dev.Matmul(device.MatmulArgs{C: c, Aux: aux, A: a.Slice(0, from, rows), B: b, Bias: bias, TransB: 1, Epilogue: device.GeluTanhEpilogue, ByRow: 1})
		return readBytes(dev, c)
	}
	sameAlone(t, product(0, rows), rows, product)
}

// sameAlone compares the bytes of all rows with those of some of them, computed by themselves.
func sameAlone(t *testing.T, all []byte, rows int64, some func(from, rows int64) []byte) {
	t.Helper()
	row := int64(len(all)) / rows
	for _, part := range [][2]int64{{0, 1}, {77, 1}, {3, 2}, {5, 3}, {20, 5}, {31, 17}, {10, 130}} {
		if !bytes.Equal(some(part[0], part[1]), all[part[0]*row:(part[0]+part[1])*row]) {
			t.Errorf("rows %d to %d, computed alone, have different bits than among %d rows", part[0], part[0]+part[1]-1, rows)
		}
	}
}

// pagedByRow prefills a sequence at once, in pieces, and row by row with others.
func pagedByRow(t *testing.T, dev *device.Device, d device.DType, window int32, one bool) {
	const rows, groups, heads, channels, blocks = 70, 2, 2, 40, 12
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(2, 2))
	// Inputs of both sequences, one after the other, and blocks for each.
	q := random(dev, s, r, d, 2*rows, groups, heads, channels)
	k, v := random(dev, s, r, d, 2*rows, groups, 1, channels), random(dev, s, r, d, 2*rows, groups, 1, channels)
	tables := s.Alloc(device.I32, 2, 5)
	device.WriteSlice(dev, tables, []int32{3, 1, 7, 0, 10, 2, 4, 5, 8, 9})
	// run makes their outputs in pieces of so many rows.
	run := func(pieces ...int64) []byte {
		sides := int64(2)
		if one {
			sides = 1
		}
		cache, o := s.Alloc(d, blocks, groups, sides, device.PagedBlock*channels), s.Alloc(d, 2*rows, groups, heads, channels)
		at := int64(0)
		for _, n := range pieces { // of both sequences, the rows of the second behind
			for _, n := range [][2]int64{{at, n}, {rows + at, n}} {
				entries := make([]int32, 0, 2*n[1])
				for i := range n[1] {
					entries = append(entries, int32(n[0]/rows), int32(n[0]%rows+i))
				}
				at := s.Alloc(device.I32, n[1], 2)
				device.WriteSlice(dev, at, entries)
				call := device.PagedAttentionArgs{O: o.Slice(0, n[0], n[1]), Q: q.Slice(0, n[0], n[1]), K: k.Slice(0, n[0], n[1]),
					Cache: cache, Tables: tables, Rows: at, Window: window, Scale: 0.2}
				if !one {
					call.V = v.Slice(0, n[0], n[1])
				}
				dev.PagedAttention(call)
			}
			at += n
		}
		return readBytes(dev, o)
	}
	full := run(rows)
	for _, pieces := range [][]int64{{1, 69}, {33, 37}, {16, 3, 1, 1, 1, 8, 40}} {
		if !bytes.Equal(run(pieces...), full) {
			t.Errorf("the output has different bits when it is computed in pieces of %d rows", pieces)
		}
	}
}
