package mpu

import "monotron/csrc/device"

// Hooks are functions that the model calls during the passes of a micro-batch, so that the
// optimizer can gather parameters and reduce gradients. Ranks that share parameters call them in
// the same order. A hook that is not needed is nil.
//
// Use is called before the values of these parameters (of a layer, of the embedding, of the head,
// of a tile) are read, in forward and in backward, and Done after. Accumulate is called before
// anything is added to these gradients (the head's: in forward), and Gradients when this backward
// has added everything to them. A tied table is used by embedding and head, but its gradients are
// reported by the embedding only.
type Hooks struct {
	Use        func([]*Param) error
	Done       func([]*Param)
	Accumulate func([]*Param) error
	Gradients  func([]*Param) error

	Leaves Leaves // of the micro-batch's tokens

	Bare bool  // adapters are off
	Kept *Kept // of the sublayer that is in its forward or backward pass; nil: nothing is kept

	// Drop sets dst to the dropout of src [n, columns], or, going back, to its gradient: of rows
	// of the pass from `row` on and columns from `column` on, by the masks of that name. nil:
	// nothing is dropped.
	Drop func(back bool, dst, src device.Tensor, name string, rate float64, row, column int64)
}

// Using runs work between Use and Done of params.
func (h *Hooks) Using(params []*Param, work func() error) error {
	if h != nil && h.Use != nil {
		if err := h.Use(params); err != nil {
			return err
		}
	}
	err := work()
	if h != nil && h.Done != nil {
		h.Done(params)
	}
	return err
}

// Adds reports that work will add to the gradients of params.
func (h *Hooks) Adds(params []*Param) error {
	if h == nil || h.Accumulate == nil || len(params) == 0 {
		return nil
	}
	return h.Accumulate(params)
}

// Final reports that the gradients of params are complete.
func (h *Hooks) Final(params []*Param) error {
	if h == nil || h.Gradients == nil || len(params) == 0 {
		return nil
	}
	return h.Gradients(params)
}

// leaves are those of a micro-batch; without hooks sums are not cut.
func (h *Hooks) leaves() Leaves {
	if h == nil {
		return Leaves{}
	}
	return h.Leaves
}
