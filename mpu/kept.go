package mpu

import "monotron/csrc/device"

// Kept is what the adapters of a sublayer keep of its forward pass for its backward pass: Scale·x·Aᵀ
// [rows, rank] of each branch, which is small. Without it backward computes the product again.
type Kept struct {
	scope *device.Scope
	down  map[*branch]device.Tensor
}

// Keep is empty; what it will hold lives in s.
func Keep(s *device.Scope) *Kept { return &Kept{s, map[*branch]device.Tensor{}} }

// kept is the branch's kept tensor for the rows of x, from number row of `rows` on, [n, rank]; none: nothing is
// kept. A forward pass that is recomputed writes it again.
func (h *Hooks) kept(b *branch, x device.Tensor, row, rows int64) device.Tensor {
	if h == nil || h.Kept == nil || len(b.pieces) == 0 {
		return device.Tensor{}
	}
	t, is := h.Kept.down[b]
	if !is {
		t = h.Kept.scope.Alloc(x.DType, rows, b.Rank)
		h.Kept.down[b] = t
	}
	return t.Slice(0, row, x.Shape[0])
}

// made is what the branch has kept of all rows, [rows, rank]; none: nothing.
func (h *Hooks) made(b *branch) device.Tensor {
	if h == nil || h.Kept == nil {
		return device.Tensor{}
	}
	return h.Kept.down[b]
}
