package ref

import "monotron/csrc/device"

func (b *backend) EmbeddingForward(a *device.EmbeddingForwardArgs) {
	h := a.Out.Last()
	tokens := ids(a.IDs)
	b.spread(int64(len(tokens)), each(h), func(from, to int64) {
		row, old := make([]float64, h), make([]float64, h)
		for r := from; r < to; r++ {
			clear(row)
			if id := int64(tokens[r]) - a.Start; id >= 0 && id < a.Table.Shape[0] {
				loadRow(row, a.Table, id)
			}
			if a.Accumulate != 0 {
				loadRow(old, a.Out, r)
				for i := range row {
					row[i] += old[i]
				}
			}
			storeRow(a.Out, r, row)
		}
	})
}

// EmbeddingBackward sums each row's tokens in order; tiles are columns.
func (b *backend) EmbeddingBackward(a *device.EmbeddingBackwardArgs) {
	where := map[int64][]int64{} // row of the table: its tokens
	for r, id := range ids(a.IDs) {
		if row := int64(id) - a.Start; row >= 0 && row < a.DTable.Shape[0] {
			where[row] = append(where[row], int64(r))
		}
	}
	if a.Grid.Given() {
		b.embedExactly(a, where)
		return
	}
	b.spread(a.DOut.Last(), 64, func(from, to int64) {
		total, dy := make([]float64, to-from), make([]float64, to-from)
		for row, tokens := range where {
			clear(total)
			for _, r := range tokens {
				load(dy, a.DOut, rowAt(a.DOut, r)+from)
				axpy(total, 1, dy)
			}
			addTo(a.DTable, rowAt(a.DTable, row)+from, total)
		}
	})
}
