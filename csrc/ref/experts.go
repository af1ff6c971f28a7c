package ref

import (
	"slices"
	"unsafe"

	"monotron/csrc/device"
)

func (*backend) ExpertOrder(a *device.ExpertOrderArgs) {
	rows, slots, offsets := ids(a.Rows), ids(a.Slots), ids(a.Offsets)
	groups := groupsOf(a)
	// offsets [groups+1]: counts of each group, summed up.
	clear(offsets)
	for _, g := range groups {
		if g >= 0 {
			offsets[g+1]++
		}
	}
	for g := range len(offsets) - 1 {
		offsets[g+1] += offsets[g]
	}
	// next: the next free row of each group. -1: a row that nobody fills, a choice that is not sent.
	next := slices.Clone(offsets)
	for i := range rows {
		rows[i], slots[i] = -1, -1
	}
	// Tokens in their order, so that rows of a group have one order in every layout.
	k := int(a.Experts.Last())
	for token := range a.Experts.Shape[0] {
		row := int(rowInOrder(a, token))
		for i := row * k; i < row*k+k; i++ {
			if g := groups[i]; g >= 0 {
				slots[i] = next[g]
				rows[next[g]] = int32(row)
				next[g]++
			}
		}
	}
}

// rowInOrder is the row of the token'th token: of a chunk of all samples sample by sample.
func rowInOrder(a *device.ExpertOrderArgs, token int64) int64 {
	if a.Chunk == 0 {
		return token
	}
	chunk, batch := int64(a.Chunk), int64(a.Batch)
	within := token % (chunk * batch)
	return token - within + within%chunk*batch + within/chunk
}

// groupsOf is the group of each choice; −1: it has no slot.
func groupsOf(a *device.ExpertOrderArgs) []int64 {
	k, n := a.Experts.Last(), a.Offsets.Shape[0]-1
	groups := make([]int64, a.Experts.Len())
	for i, e := range ids(a.Experts) {
		g := (int64(e) - a.Start) / a.Width
		first := int64(i) / k * k
		if int64(e) < a.Start || g >= n || a.Once != 0 && slices.Contains(groups[first:i], g) {
			g = -1
		}
		groups[i] = g
	}
	return groups
}

func (b *backend) GatherRows(a *device.GatherRowsArgs) {
	rows, bytes := ids(a.Rows), a.Out.Last()*a.Out.DType.Size()
	raw := func(t device.Tensor, r int64) []byte {
		return unsafe.Slice((*byte)(unsafe.Add(t.Data, t.Stride[0]*r*t.DType.Size())), bytes)
	}
	b.spread(a.Out.Shape[0], each(bytes), func(from, to int64) {
		for r := from; r < to; r++ {
			if row := int64(rows[r]); row >= 0 && row < a.In.Shape[0] {
				copy(raw(a.Out, r), raw(a.In, row))
			} else {
				clear(raw(a.Out, r))
			}
		}
	})
}

// CombineRows adds up a token's rows by the order of Slots, which is that of its choices.
func (b *backend) CombineRows(a *device.CombineRowsArgs) {
	h, k, slots := a.Out.Last(), a.Slots.Last(), ids(a.Slots)
	b.spread(a.Out.Shape[0], each(h*k), func(from, to int64) {
		sum, row := make([]float64, h), make([]float64, h)
		for r := from; r < to; r++ {
			clear(sum)
			for _, slot := range slots[r*k:][:k] {
				if slot >= 0 && int64(slot) < a.In.Shape[0] {
					loadRow(row, a.In, int64(slot))
					axpy(sum, 1, row)
				}
			}
			storeRow(a.Out, r, sum)
		}
	})
}

// GroupedMatmul is a product a group.
func (b *backend) GroupedMatmul(a *device.GroupedMatmulArgs) {
	offsets := ids(a.Offsets)
	for g := range int64(len(offsets) - 1) {
		from, n := int64(offsets[g]), int64(offsets[g+1]-offsets[g])
		if n == 0 {
			continue
		}
		if a.Grid.Given() {
			eachLeaf(a.Leaf, from, n, func(from, n int64) {
				b.addLeaf(a.C.At(g), a.A.Slice(0, from, n), a.B.Slice(0, from, n), a.Grid, a.Peak)
			})
			continue
		}
		m := device.MatmulArgs{A: a.A.Slice(0, from, n)}
		if a.TransA != 0 {
			m.C, m.B, m.TransA, m.Accumulate = a.C.At(g), a.B.Slice(0, from, n), 1, 1
		} else {
			m.C, m.B, m.TransB, m.Leaves, m.Stretches = a.C.Slice(0, from, n), a.B.At(g), a.TransB, a.Leaves, a.Stretches
			if a.Bias.Given() {
				m.Bias = a.Bias.At(g)
			}
		}
		b.Matmul(&m)
	}
}

// eachLeaf calls f for neighbouring rows of equal numbers among n rows from `from` on.
func eachLeaf(leaf device.Tensor, from, n int64, f func(from, n int64)) {
	number := ids(leaf)
	for at := from; at < from+n; {
		end := at + 1
		for end < from+n && number[end] == number[at] {
			end++
		}
		f(at, end-at)
		at = end
	}
}

func (b *backend) GroupedSum(a *device.GroupedSumArgs) {
	offsets := ids(a.Offsets)
	for g := range int64(len(offsets) - 1) {
		from, n := int64(offsets[g]), int64(offsets[g+1]-offsets[g])
		switch {
		case n == 0:
		case a.Grid.Given():
			eachLeaf(a.Leaf, from, n, func(from, n int64) {
				leaf := narrowBuffer(a.X.Last())
				b.ColumnSum(&device.ColumnSumArgs{Out: leaf, X: a.X.Slice(0, from, n)})
				b.GridAdd(&device.GridAddArgs{Sum: a.Out.At(g), X: leaf, Grid: a.Grid, Peak: a.Peak})
			})
		default:
			b.ColumnSum(&device.ColumnSumArgs{Out: a.Out.At(g), X: a.X.Slice(0, from, n)})
		}
	}
}

func (b *backend) ScaleRows(a *device.ScaleRowsArgs) {
	b.spread(a.X.Shape[0], each(a.X.Last()), func(from, to int64) {
		x := make([]float64, a.X.Last())
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			times(x, one(a.Weight, r))
			storeRow(a.Y, r, x)
		}
	})
}

func (b *backend) RowDots(a *device.RowDotsArgs) {
	n := a.X.Last()
	b.spread(a.X.Shape[0], each(n), func(from, to int64) {
		x, y := make([]float64, n), make([]float64, n)
		for r := from; r < to; r++ {
			loadRow(x, a.X, r)
			loadRow(y, a.Y, r)
			setOne(a.Out, r, dot(x, y))
		}
	})
}

func (*backend) PlaceChoices(a *device.PlaceChoicesArgs) {
	if a.Placed.DType == device.I32 {
		placeChoices(a, ids(a.Placed), ids(a.Chosen))
		return
	}
	placed, chosen := vector(a.Placed), vector(a.Chosen)
	placeChoices(a, placed, chosen)
	if a.Back != 0 {
		store(a.Chosen, 0, chosen)
	} else {
		store(a.Placed, 0, placed)
	}
}

func placeChoices[T int32 | float64](a *device.PlaceChoicesArgs, placed, chosen []T) {
	if a.Back == 0 {
		clear(placed)
	} else {
		clear(chosen)
	}
	for i, slot := range ids(a.Slots) {
		switch {
		case slot < 0 || int(slot) >= len(placed):
		case a.Back != 0:
			chosen[i] = placed[slot]
		default:
			placed[slot] = chosen[i]
		}
	}
}
