package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// VocabParallelEmbedding looks tokens up in a table [vocab, h] whose rows are
// cut over the tensor-parallel ranks; ids of other ranks give zero here, and the
// ranks' rows are summed.
type VocabParallelEmbedding struct {
	Weight *Param
	Start  int64 // first row here
	tp     comm.Group
}

// NewVocabParallelEmbedding makes a table of `padded` rows. The global tensor
// has `kept` of them: the vocabulary, or all rows where padding is trained.
func NewVocabParallelEmbedding(tp comm.Group, name string, kept, padded, h int64, init Init) *VocabParallelEmbedding {
	n := padded / int64(tp.Size())
	start := n * int64(tp.Rank())
	here := max(0, min(n, kept-start))
	w := Rows(name, init, []int64{kept, h}, [][2]int64{{start, here}}, n)
	return &VocabParallelEmbedding{Weight: w, Start: start, tp: tp}
}

// Forward: out [tokens, h] = table[ids].
func (e *VocabParallelEmbedding) Forward(d *device.Device, out, ids device.Tensor) error {
	d.EmbeddingForward(device.EmbeddingForwardArgs{Out: out, Table: e.Weight.Value, IDs: ids, Start: e.Start})
	return ReduceFromRegionForward(e.tp, out)
}

// Backward: the table's gradient += dout, in token order.
func (e *VocabParallelEmbedding) Backward(d *device.Device, dout, ids device.Tensor) {
	d.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: e.Weight.Grad, DOut: dout, IDs: ids, Start: e.Start})
}
