package mpu

import (
	"monotron/csrc/device"
)

// tableBranch is a low-rank addition to a lookup table: row i gets Scale·B·A[i], with
// A [rows, rank], which PEFT keeps the other way round, and B [h, rank].
type tableBranch struct {
	Branch
	a, b *Param
}

// Adapt adds a low-rank branch to the table, before its parameters are allocated. A is cut as the table is; B is
// on every rank, with a partial gradient, since each reads its own rows.
func (e *VocabParallelEmbedding) Adapt(c Branch) {
	name := AdapterPrefix + c.Name
	var stretches [][2]int64
	for _, p := range e.Weight.Pieces {
		stretches = append(stretches, [2]int64{p.From[0], max(0, min(p.Size[0], c.In-p.From[0]))})
	}
	t := &tableBranch{Branch: c}
	t.a = Rows(name+".lora_embedding_A", Init{Kind: InitConstant}, []int64{c.In, c.Rank}, stretches, e.Weight.Shape[0])
	t.a.ByToken = true
	t.b = Uncut(name+".lora_embedding_B", Init{Std: 1}, c.Out, c.Rank)
	t.b.PartialOn(e.region)
	e.branch = t
}

func (t *tableBranch) params() []*Param {
	if t == nil {
		return nil
	}
	return []*Param{t.a, t.b}
}

// AdapterParams lists A and B of the table's adapter.
func (e *VocabParallelEmbedding) AdapterParams() []*Param { return e.branch.params() }

// low is Scale·A[ids] [tokens, rank]; 0 for ids of other ranks.
func (t *tableBranch) low(d *device.Device, s *device.Scope, dtype device.DType, ids device.Tensor, start int64) device.Tensor {
	low := s.Alloc(dtype, ids.Shape[0], t.Rank)
	d.EmbeddingForward(device.EmbeddingForwardArgs{Out: low, Table: t.a.Value, IDs: ids, Start: start})
	t.scale(d, low)
	return low
}

// forward adds the branch's rows of ids to out [tokens, h].
func (t *tableBranch) forward(d *device.Device, out, ids device.Tensor, start int64) {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	d.LowRankAdd(device.LowRankAddArgs{Y: out, X: t.low(d, s, out.DType, ids, start), B: t.b.Value, Scale: 1, TransB: 1})
}

// backward adds to the gradients of A and B; dout [tokens, h] has the rows of all tokens.
func (t *tableBranch) backward(d *device.Device, dout, ids device.Tensor, start int64) {
	if t == nil {
		return
	}
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	if !t.b.Frozen {
		d.Matmul(device.MatmulArgs{C: t.b.Grad, A: dout, B: t.low(d, s, dout.DType, ids, start), TransA: 1, Accumulate: 1})
	}
	if t.a.Frozen {
		return
	}
	dlow := s.Alloc(dout.DType, dout.Shape[0], t.Rank)
	d.Matmul(device.MatmulArgs{C: dlow, A: dout, B: t.b.Value})
	t.scale(d, dlow)
	d.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: t.a.Grad, DOut: dlow, IDs: ids, Start: start})
}
