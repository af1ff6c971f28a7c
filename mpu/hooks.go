package mpu

import "monotron/csrc/device"

// Hooks are what a model calls while a micro-batch goes through, in the order that all ranks
// share which have the same parameters; each is nil where nobody needs it.
//
// Use comes before these values are read (of a layer, of the embedding, of the head, of a tile),
// in forward and in backward, and Done after; Accumulate before anything is added to these
// gradients (the head's: in forward), and Gradients, during backward, when this backward adds
// no more to them. A tied table is used by embedding and head, and is the embedding's.
type Hooks struct {
	Use        func([]*Param) error
	Done       func([]*Param)
	Accumulate func([]*Param) error
	Gradients  func([]*Param) error

	Leaves Leaves // of the micro-batch's tokens

	Bare bool // adapters are off

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
