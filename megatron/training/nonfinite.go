package training

import (
	"monotron/csrc/device"
)

// spoiled shows the residual stream to look, after --inject has put a NaN into it
// where that is asked for: in a step's first micro-batch.
func (e *Engine) spoiled(micro int, look func(int, device.Tensor)) func(int, device.Tensor) {
	if e.rank.inject == nil || micro > 0 {
		return look
	}
	return func(depth int, x device.Tensor) {
		if e.rank.inject.Spoils(e.Iteration+1, depth) {
			e.poison(x)
		}
		if look != nil {
			look(depth, x)
		}
	}
}

// poison makes the first element of x a NaN.
func (e *Engine) poison(x device.Tensor) {
	first := x.Reshape(x.Len()).Slice(0, 0, 1)
	nan := uint32(0x7fc00000)
	switch x.DType {
	case device.F32:
		device.WriteSlice(e.device, first, []uint32{nan})
	case device.BF16:
		device.WriteSlice(e.device, first, []uint16{uint16(nan >> 16)})
	case device.F16:
		device.WriteSlice(e.device, first, []uint16{0x7e00})
	}
}
