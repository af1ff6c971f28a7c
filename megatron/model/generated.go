package model

import (
	"monotron/csrc/device"
)

// Placed assigns the rows of a pass over complete sequences to empty blocks of a KV cache, as
// generation does, so that attention computes the same bits (Pass.AsGenerated).
type Placed struct {
	Blocks int64  // of all sequences
	Tables Tensor // i32 [b, blocks of each], as in PagedAttentionArgs
	Rows   Tensor // i32 [s·b, 2]: sequence and position
}

// generated is the exchange of a rank that has all positions, with generation's attention in the
// forward pass. The backward pass is the inner exchange's: it takes the statistics of its own forward
// pass, which differs by rounding.
type generated struct{ inner exchange }

func (e generated) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (at attended, err error) {
	at.o = o
	if p.Grad {
		if at, err = e.inner.forward(p, s, c, o, h); err != nil {
			return at, err
		}
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	c.a.paged(p, o, h, c.a.newCache(tmp, p.DType, p.AsGenerated.Blocks), p.AsGenerated.Tables, p.AsGenerated.Rows)
	return at, nil
}

func (e generated) backward(p *Pass, c core, at attended, h, grads heads, do Tensor) error {
	return e.inner.backward(p, c, at, h, grads, do)
}
