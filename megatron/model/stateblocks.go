package model

import "monotron/csrc/device"

// stateBlocks are the blocks of a layer whose heads carry a state over the positions. A block has the states behind
// the last of its positions, and the inputs of the convolution at all of them, in f32 whatever the values are.
type stateBlocks struct {
	state  [3]int64 // heads, rows and columns of each head's state
	inputs int64    // channels of the convolution
}

func (b stateBlocks) newBlocks(d *device.Device, _ device.DType, blocks int64) Tensor {
	return d.Arena.Alloc(device.Activations, device.F32, blocks, b.elements())
}

func (b stateBlocks) blockBytes(device.DType) int64 { return b.elements() * device.F32.Size() }

func (b stateBlocks) elements() int64 { return b.stateElements() + device.PagedBlock*b.inputs }

func (b stateBlocks) stateElements() int64 { return b.state[0] * b.state[1] * b.stateColumns() }

// stateColumns is how wide rows of a state lie in a block.
func (b stateBlocks) stateColumns() int64 { return (b.state[2] + 15) / 16 * 16 }

// views are states [blocks, heads, rows, columns] and inputs [blocks, positions, channels] in the blocks.
func (b stateBlocks) views(all Tensor) (states, inputs Tensor) {
	blocks, each, wide := all.Shape[0], all.Shape[1], b.stateColumns()
	states = device.Strided(all.Data, all.DType, []int64{blocks, b.state[0], b.state[1], wide}, []int64{each, b.state[1] * wide, wide, 1})
	inputs = device.Strided(all.Slice(1, b.stateElements(), 1).Data, all.DType, []int64{blocks, device.PagedBlock, b.inputs}, []int64{each, b.inputs, 1})
	return states, inputs
}
