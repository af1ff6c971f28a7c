package ref

import "monotron/csrc/device"

// slots says where rows of sequences lie in blocks.
type slots struct {
	rows, tables []int32
	most         int64 // blocks of a sequence
}

func newSlots(tables, rows device.Tensor) slots {
	return slots{ids(rows), ids(tables), tables.Shape[1]}
}

func (p slots) position(row int64) int64 { return int64(p.rows[2*row+1]) }

// block is the one that has a position of a row's sequence.
func (p slots) block(row, position int64) int64 {
	return int64(p.tables[int64(p.rows[2*row])*p.most+position/device.PagedBlock])
}

func (b *backend) PagedCausalConv(a *device.PagedCausalConvArgs) {
	p, kernel, n, taps := newSlots(a.Tables, a.Rows), a.W.Last(), a.X.Last(), vector(a.W)
	at := func(row, position int64) int64 {
		return p.block(row, position)*a.Inputs.Stride[0] + position%device.PagedBlock*a.Inputs.Stride[1]
	}
	// All inputs go into their blocks first: a row may read those of rows in this call.
	b.pool.Run(a.X.Shape[0], func(_ int, row int64) {
		x := make([]float64, n)
		loadRow(x, a.X, row)
		store(a.Inputs, at(row, p.position(row)), x)
	})
	// Then each row reads its last `kernel` positions, from blocks.
	b.pool.Run(a.X.Shape[0], func(_ int, row int64) {
		x, z := make([]float64, n), biasOf(a.Bias, n)
		for j := range kernel {
			from := p.position(row) - kernel + 1 + j
			if from < 0 {
				continue
			}
			load(x, a.Inputs, at(row, from))
			for i := range z {
				z[i] += taps[int64(i)*kernel+j] * x[i]
			}
		}
		for i := range z {
			z[i], _ = unitOf(z[i], a.Plain)
		}
		storeRow(a.Y, row, z)
	})
}

func (b *backend) PagedDeltaRule(a *device.PagedDeltaRuleArgs) {
	p := newSlots(a.Tables, a.Rows)
	f := a.Forward()
	b.pool.Run(a.V.Shape[1], func(_ int, head int64) {
		h := newDeltaHead(&f, head)
		x, o, state, columns := h.newStep(), make([]float64, h.dv), make([]float64, h.dk*h.dv), a.States.Shape[3]
		at := func(row, position int64) int64 {
			return p.block(row, position)*a.States.Stride[0] + head*a.States.Stride[1]
		}
		for row := range a.Q.Shape[0] {
			position := p.position(row)
			h.read(x, row, position == 0)
			if clear(state); position > 0 {
				for i := range h.dk {
					load(state[i*h.dv:][:h.dv], a.States, at(row, position-1)+i*columns)
				}
			}
			x.move(state)
			clear(o)
			for i, q := range x.q {
				axpy(o, q, state[int64(i)*h.dv:][:h.dv])
				store(a.States, at(row, position)+int64(i)*columns, state[int64(i)*h.dv:][:h.dv])
			}
			h.passBy(o, x.v)
			storeRow(a.O, h.row(a.O, row), o)
		}
	})
}
