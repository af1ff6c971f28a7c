package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"monotron/internal/exitcode"
)

// The .idx file: 9 bytes of magic, u64 version, u8 dtype, u64 sequences N, u64
// document entries D, i32[N] lengths, i64[N] byte offsets, i64[D] boundaries.
const (
	idxMagic    = "MMIDIDX\x00\x00"
	idxVersion  = 1
	headerBytes = 34
)

// DType is the code of the token type in an .idx header.
type DType uint8

const (
	U8  DType = 1
	I8  DType = 2
	I16 DType = 3
	I32 DType = 4
	I64 DType = 5
	F64 DType = 6
	F32 DType = 7
	U16 DType = 8
)

var dtypes = map[DType]struct {
	name     string
	size     int
	low, top int64 // token ids it holds
}{
	U8:  {"uint8", 1, 0, math.MaxUint8},
	I8:  {"int8", 1, math.MinInt8, math.MaxInt8},
	I16: {"int16", 2, math.MinInt16, math.MaxInt16},
	I32: {"int32", 4, math.MinInt32, math.MaxInt32},
	I64: {"int64", 8, math.MinInt64, math.MaxInt64},
	F64: {"float64", 8, 0, -1},
	F32: {"float32", 4, 0, -1},
	U16: {"uint16", 2, 0, math.MaxUint16},
}

// DTypeFor is Megatron's choice for a vocabulary: u16 below 65500 ids (not
// 65536), else i32.
func DTypeFor(vocab int) DType {
	if vocab < 65500 {
		return U16
	}
	return I32
}

// Size is the bytes of one token, 0 for an unknown code.
func (d DType) Size() int { return dtypes[d].size }

// String is numpy's name.
func (d DType) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return fmt.Sprintf("dtype code %d", uint8(d))
}

// Append adds ids to dst in the file's form. An id that the type cannot hold is
// an error.
func (d DType) Append(dst []byte, ids []int32) ([]byte, error) {
	t := dtypes[d]
	from := len(dst)
	dst = slices.Grow(dst, len(ids)*t.size)[:from+len(ids)*t.size]
	to := dst[from:]
	if d == U16 && putShort(to, ids) { // the usual one
		return dst, nil
	}
	for i, id := range ids {
		if int64(id) < t.low || int64(id) > t.top {
			return dst[:from], exitcode.Errorf(exitcode.BadData, "token %d: the id %d does not fit into %s", i, id, d)
		}
	}
	switch d {
	case I16:
		for i, id := range ids {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(id))
		}
	case I32:
		for i, id := range ids {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(id))
		}
	case U8, I8:
		for i, id := range ids {
			to[i] = byte(id)
		}
	case I64:
		for i, id := range ids {
			binary.LittleEndian.PutUint64(to[8*i:], uint64(int64(id)))
		}
	}
	return dst, nil
}

// shortFrom is how many ids must there be for a call into C to pay.
const shortFrom = 64

// putShort writes ids as u16, four at a time; false where one does not fit.
func putShort(to []byte, ids []int32) bool {
	if shortInC && len(ids) >= shortFrom {
		return shortKernel(to, ids) <= math.MaxUint16
	}
	all := uint32(0)
	for len(ids) >= 4 && len(to) >= 8 {
		a, b, c, d := uint32(ids[0]), uint32(ids[1]), uint32(ids[2]), uint32(ids[3])
		all |= a | b | c | d
		binary.LittleEndian.PutUint64(to, uint64(a|b<<16)|uint64(c|d<<16)<<32)
		ids, to = ids[4:], to[8:]
	}
	for i, id := range ids {
		all |= uint32(id)
		binary.LittleEndian.PutUint16(to[2*i:], uint16(id))
	}
	return all <= math.MaxUint16
}

// decode adds the tokens in raw to dst; at most int32 values reach the caller.
func (d DType) decode(dst []int32, raw []byte) ([]int32, error) {
	switch d {
	case U16:
		for ; len(raw) >= 2; raw = raw[2:] {
			dst = append(dst, int32(binary.LittleEndian.Uint16(raw)))
		}
	case I16:
		for ; len(raw) >= 2; raw = raw[2:] {
			dst = append(dst, int32(int16(binary.LittleEndian.Uint16(raw))))
		}
	case I32:
		for ; len(raw) >= 4; raw = raw[4:] {
			dst = append(dst, int32(binary.LittleEndian.Uint32(raw)))
		}
	case U8:
		for _, b := range raw {
			dst = append(dst, int32(b))
		}
	case I8:
		for _, b := range raw {
			dst = append(dst, int32(int8(b)))
		}
	case I64:
		// Models hold 32-bit ids: a wider one is refused, not cut.
		for ; len(raw) >= 8; raw = raw[8:] {
			v := int64(binary.LittleEndian.Uint64(raw))
			if int64(int32(v)) != v {
				return dst, exitcode.Errorf(exitcode.BadData, "the token id %d does not fit into 32 bits", v)
			}
			dst = append(dst, int32(v))
		}
	default:
		return dst, exitcode.Errorf(exitcode.BadData, "%s is not a supported data type for token ids", d)
	}
	return dst, nil
}
