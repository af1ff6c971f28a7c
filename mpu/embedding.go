package mpu

import (
	"monotron/csrc/device"
)

// VocabParallelEmbedding maps tokens to rows of a table [vocab, h], which are
// cut over the tensor-parallel ranks; ids of other ranks give zero here, and the
// ranks' rows are summed.
type VocabParallelEmbedding struct {
	Weight *Param
	Start  int64 // first row here
	region Region
	branch *tableBranch // nil: none
}

// NewVocabParallelEmbedding makes a table of `padded` rows. The global tensor
// has `kept` of them: the vocabulary, or all rows where padding is trained.
func NewVocabParallelEmbedding(r Region, name string, kept, padded, h int64, init Init) *VocabParallelEmbedding {
	n := padded / int64(r.Size())
	start := n * int64(r.Rank())
	here := max(0, min(n, kept-start))
	w := Rows(name, init, []int64{kept, h}, [][2]int64{{start, here}}, n)
	w.Role, w.ByToken = Vocabulary, true
	return &VocabParallelEmbedding{Weight: w, Start: start, region: r}
}

// Params lists the table, and A and B of its adapter.
func (e *VocabParallelEmbedding) Params() []*Param {
	return append([]*Param{e.Weight}, e.AdapterParams()...)
}

// Forward: out = table[ids] for ids [tokens]; out is [tokens, h], under sequence
// parallelism the rank's rows of it.
func (e *VocabParallelEmbedding) Forward(d *device.Device, h *Hooks, out, ids device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	region := e.region
	region.Leaves = 0 // all ranks but one add 0, which rounds nothing
	sum := leaving(region, s, out)
	d.EmbeddingForward(device.EmbeddingForwardArgs{Out: sum, Table: e.Weight.Value, IDs: ids, Start: e.Start})
	if e.branch != nil && (h == nil || !h.Bare) {
		e.branch.forward(d, sum, ids, e.Start)
	}
	return wait(leave(region, d, out, sum))
}

// Backward: the table's gradient [rows here, h] += dout [tokens, h] at ids i32 [tokens], in token order, and
// those of its adapter. dout has the rows of all tokens: see FullGradient.
func (e *VocabParallelEmbedding) Backward(d *device.Device, dout, ids device.Tensor) {
	e.branch.backward(d, dout, ids, e.Start)
	if e.Weight.Frozen {
		return
	}
	d.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: e.Weight.Grad, DOut: dout, IDs: ids, Start: e.Start, Grid: e.Weight.Grid, Peak: e.Weight.Peak})
}

// FullGradient gathers the ranks' rows of dout to [tokens, h] under sequence parallelism, in
// memory of s; else it is dout itself.
func (e *VocabParallelEmbedding) FullGradient(s *device.Scope, dout device.Tensor) (device.Tensor, error) {
	full, w := entering(e.region, s, dout)
	return full, wait(w)
}
