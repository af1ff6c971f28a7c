package mpu

import "monotron/csrc/device"

// A weight that is not trained may lie in memory in fewer bits than its type has (--quantize-base nf4). A product
// takes a stretch of its rows at a time, or of its columns, which is unpacked for it: so every element of an output
// or of an input's gradient is one sum, made as of the complete weight.

// stretchElements of a packed weight are unpacked at a time, about.
const stretchElements = 1 << 19

// stretchUnit is what numbers of rows and columns are multiples of: a block of NF4.
const stretchUnit = 64

// evenly is the length of the stretches, the last one's apart, in which n rows or columns of a weight of so many
// elements are unpacked.
func evenly(n, elements int64) int64 {
	count := (elements + stretchElements - 1) / stretchElements
	each := (n + count - 1) / count
	return (each + stretchUnit - 1) / stretchUnit * stretchUnit
}

// inStretches calls product for stretches of w's rows (along 0) or columns (along 1): one, if the complete value is in
// memory, else those in which it is unpacked.
func (w *Param) inStretches(d *device.Device, dtype device.DType, along int, product func(part device.Tensor, from, n int64)) error {
	length := w.Shape[along]
	if w.Value.Given() || w.Unpack == nil {
		product(w.Value, 0, length)
		return nil
	}
	each := evenly(length, w.Len())
	for from := int64(0); from < length; from += each {
		box := [2][2]int64{{0, w.Shape[0]}, {0, w.Shape[1]}} // {first, number} of rows and of columns
		box[along] = [2]int64{from, min(each, length-from)}
		part := d.Arena.Alloc(device.Parameters, dtype, box[0][1], box[1][1])
		err := w.Unpack(part, box[0], box[1])
		if err == nil {
			product(part, from, box[along][1])
		}
		d.Arena.Free(part)
		if err != nil {
			return err
		}
	}
	return nil
}
