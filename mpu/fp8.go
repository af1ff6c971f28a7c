package mpu

import "monotron/csrc/device"

// FP8 rounds the operands of a linear layer's products to numbers of 8 bits, with power-of-two scales of
// blocks (Transformer Engine's blockwise recipe): inputs and gradients 1 x 128 along what a product sums,
// weights 128 x 128. The product is then made of the rounded values in f32. So any device computes what a device
// with FP8 products computes, except for the order of sums. A nil FP8 rounds nothing.
type FP8 struct {
	Gradients int32 // format of gradients: device.E4M3, or with Megatron's hybrid device.E5M2; the rest has E4M3
}

// FP8Block is the side of a block.
const FP8Block = 128

func (f *FP8) rounded(d *device.Device, s *device.Scope, x device.Tensor, rows, columns, format int32) device.Tensor {
	if f == nil {
		return x
	}
	out := s.Alloc(x.DType, x.Dims()...)
	d.RoundFP8(device.RoundFP8Args{Out: out, X: x, Rows: rows, Columns: columns, Format: format})
	return out
}

// input is x [tokens, in] of a product over channels; overTokens of one over tokens.
func (f *FP8) input(d *device.Device, s *device.Scope, x device.Tensor) device.Tensor {
	return f.rounded(d, s, x, 1, FP8Block, device.E4M3)
}

func (f *FP8) inputOverTokens(d *device.Device, s *device.Scope, x device.Tensor) device.Tensor {
	return f.rounded(d, s, x, FP8Block, 1, device.E4M3)
}

// gradient is dy [tokens, out] in the same way.
func (f *FP8) gradient(d *device.Device, s *device.Scope, dy device.Tensor) device.Tensor {
	if f == nil {
		return dy
	}
	return f.rounded(d, s, dy, 1, FP8Block, f.Gradients)
}

func (f *FP8) gradientOverTokens(d *device.Device, s *device.Scope, dy device.Tensor) device.Tensor {
	if f == nil {
		return dy
	}
	return f.rounded(d, s, dy, FP8Block, 1, f.Gradients)
}

// weight is W [out, in].
func (f *FP8) weight(d *device.Device, s *device.Scope, w device.Tensor) device.Tensor {
	return f.rounded(d, s, w, FP8Block, FP8Block, device.E4M3)
}
