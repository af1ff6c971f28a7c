package gguf

import "fmt"

// Type is how the elements of a tensor are stored, by ggml's number.
type Type uint32

// Tensor types that are read. Those without K or digits are plain elements.
const (
	F32   Type = 0
	F16   Type = 1
	Q4_0  Type = 2
	Q4_1  Type = 3
	Q5_0  Type = 6
	Q5_1  Type = 7
	Q8_0  Type = 8
	Q2_K  Type = 10
	Q3_K  Type = 11
	Q4_K  Type = 12
	Q5_K  Type = 13
	Q6_K  Type = 14
	BF16  Type = 30
	MXFP4 Type = 39
)

// layout is a type's block: so many elements in so many bytes.
type layout struct {
	name     string
	elements int64
	bytes    int64
	decode   func(dst []float32, block []byte) // elements of one block; nil: plain elements
}

var layouts = map[Type]layout{
	F32:   {"F32", 1, 4, nil},
	F16:   {"F16", 1, 2, nil},
	BF16:  {"BF16", 1, 2, nil},
	Q4_0:  {"Q4_0", 32, 18, decodeQ4_0},
	Q4_1:  {"Q4_1", 32, 20, decodeQ4_1},
	Q5_0:  {"Q5_0", 32, 22, decodeQ5_0},
	Q5_1:  {"Q5_1", 32, 24, decodeQ5_1},
	Q8_0:  {"Q8_0", 32, 34, decodeQ8_0},
	Q2_K:  {"Q2_K", 256, 84, decodeQ2_K},
	Q3_K:  {"Q3_K", 256, 110, decodeQ3_K},
	Q4_K:  {"Q4_K", 256, 144, decodeQ4_K},
	Q5_K:  {"Q5_K", 256, 176, decodeQ5_K},
	Q6_K:  {"Q6_K", 256, 210, decodeQ6_K},
	MXFP4: {"MXFP4", 32, 17, decodeMXFP4},
}

// unread are ggml's other types, for messages.
var unread = map[Type]string{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4"}

// String is ggml's name of a type.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	if name := unread[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Known reports whether tensors of a type can be read.
func (t Type) Known() bool { return layouts[t].bytes > 0 }

// Plain reports a type whose elements are stored one by one.
func (t Type) Plain() bool { return t.Known() && layouts[t].decode == nil }

// BlockElements is how many elements of a row one block holds; 1 for plain types.
func (t Type) BlockElements() int64 { return layouts[t].elements }

// Bytes is the size of n elements, a multiple of the block.
func (t Type) Bytes(n int64) int64 {
	l := layouts[t]
	return n / l.elements * l.bytes
}
