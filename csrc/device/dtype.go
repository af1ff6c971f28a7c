package device

import "fmt"

// DType is the type of a tensor's elements.
type DType int32

const (
	F32 DType = iota
	BF16
	F16
	I32
	I64
	U16
	F64 // statistics; values too on the ref device, for finite differences
	U8  // codes
	DTypes
)

var dtypeNames = [DTypes]string{"f32", "bf16", "f16", "i32", "i64", "u16", "f64", "u8"}
var dtypeSizes = [DTypes]int64{4, 2, 2, 4, 8, 2, 8, 1}

func (d DType) String() string {
	if d < 0 || d >= DTypes {
		return fmt.Sprintf("dtype(%d)", int32(d))
	}
	return dtypeNames[d]
}

// Size is the number of bytes of one element.
func (d DType) Size() int64 { return dtypeSizes[d] }
