package checkpoint

import (
	"encoding/binary"
	"math"
	"math/bits"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// widths of the element types that checkpoints hold, by safetensors' names.
var widths = map[string]int64{"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}

// Width is the bytes of one element; 0 for types that checkpoints do not hold.
func Width(dtype string) int64 { return widths[dtype] }

// IsFloat reports the types that Cast converts into each other.
func IsFloat(dtype string) bool {
	return dtype == "F64" || dtype == "F32" || dtype == "BF16" || dtype == "F16"
}

// Volume is the number of elements of a checked shape.
func Volume(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// SafeBytes is the size of shape in elements of width bytes; ok is false where
// the tensor could not fit in memory.
func SafeBytes(shape []int64, width int64) (bytes int64, ok bool) {
	const maxRank = 8
	if len(shape) == 0 || len(shape) > maxRank || width < 1 {
		return 0, false
	}
	n := uint64(width)
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if d < 1 || hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		n = lo
	}
	return int64(n), true
}

// Cast is src with its tensors converted to other float types: to returns the type
// for a tensor, or "" to keep its type. Values are rounded to nearest even.
func Cast(src Source, to func(Tensor) string) Source {
	c := &cast{Source: src, from: map[string]Tensor{}, to: map[string]string{}}
	for _, t := range src.Tensors() {
		want := to(t)
		if want != "" && want != t.DType && IsFloat(want) && IsFloat(t.DType) {
			c.from[t.Name], c.to[t.Name] = t, want
			t.DType = want
		}
		c.list = append(c.list, t)
	}
	return c
}

type cast struct {
	Source
	list []Tensor
	from map[string]Tensor
	to   map[string]string
}

func (c *cast) Tensors() []Tensor { return c.list }

func (c *cast) Read(name string, box mpu.Piece, dst []byte) error {
	t, ok := c.from[name]
	if !ok {
		return c.Source.Read(name, box, dst)
	}
	wide, narrow := Width(t.DType), Width(c.to[name])
	return byRows(box, int64(4<<20)/wide, func(sub mpu.Piece, at int64) error {
		raw := make([]byte, sub.Len()*wide)
		if err := c.Source.Read(name, sub, raw); err != nil {
			return err
		}
		return Convert(dst[at*narrow:(at+sub.Len())*narrow], c.to[name], raw, t.DType)
	})
}

// byRows cuts a box into boxes of about n elements, front to back; at is the
// element of the box where each starts.
func byRows(box mpu.Piece, n int64, each func(sub mpu.Piece, at int64) error) error {
	row := box.Len() / max(1, box.Size[0])
	rows := blocks.Step(box.Size[0], row, n)
	for r := int64(0); r < box.Size[0]; r += rows {
		sub := mpu.Piece{From: append([]int64{box.From[0] + r}, box.From[1:]...), Size: append([]int64{min(rows, box.Size[0]-r)}, box.Size[1:]...)}
		if err := each(sub, r*row); err != nil {
			return err
		}
	}
	return nil
}

// BoxByRows cuts a box into boxes of about n elements, complete rows, front to back.
func BoxByRows(box mpu.Piece, n int64, each func(sub mpu.Piece)) {
	_ = byRows(box, n, func(sub mpu.Piece, _ int64) error { each(sub); return nil })
}

var le = binary.LittleEndian

// Convert converts raw elements from one float type to another, rounded to
// nearest even. dst must be as long as the result.
func Convert(dst []byte, to string, raw []byte, from string) error {
	n := len(raw) / int(Width(from))
	// Types that are common are converted directly, others by way of float64.
	switch {
	case to == from:
		copy(dst, raw)
	case from == "BF16" && to == "F32":
		for i := range n {
			le.PutUint32(dst[4*i:], uint32(le.Uint16(raw[2*i:]))<<16)
		}
	case from == "F16" && to == "F32":
		for i := range n {
			le.PutUint32(dst[4*i:], math.Float32bits(safetensors.FromF16(le.Uint16(raw[2*i:]))))
		}
	case from == "F32" && to == "BF16":
		for i := range n {
			le.PutUint16(dst[2*i:], safetensors.ToBF16(math.Float32frombits(le.Uint32(raw[4*i:]))))
		}
	case from == "F32" && to == "F16":
		for i := range n {
			le.PutUint16(dst[2*i:], safetensors.ToF16(math.Float32frombits(le.Uint32(raw[4*i:]))))
		}
	default:
		values := make([]float64, n)
		known := safetensors.Decode(values, from, raw)
		out, ok := safetensors.Encode(dst[:0], to, values)
		if !known || !ok || len(out) != len(dst) {
			return exitcode.Errorf(exitcode.Internal, "internal error: values of type %s cannot be converted to %s; report this, and include the command line", from, to)
		}
	}
	return nil
}

// Select is src with only the tensors for which keep returns true.
func Select(src Source, keep func(Tensor) bool) Source {
	s := &selected{Source: src}
	for _, t := range src.Tensors() {
		if keep(t) {
			s.list = append(s.list, t)
		}
	}
	return s
}

type selected struct {
	Source
	list []Tensor
}

func (s *selected) Tensors() []Tensor { return s.list }
