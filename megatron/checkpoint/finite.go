package checkpoint

import (
	"fmt"
	"sync/atomic"

	"monotron/internal/exitcode"
	"monotron/mpu"
)

// Finite is src with a check: to read a float that is NaN or infinite is an error
// that names tensor and index.
func Finite(src Source) Source {
	f := &finite{Source: src, types: map[string]string{}}
	for _, t := range src.Tensors() {
		f.types[t.Name] = t.DType
	}
	return f
}

// Origin is implemented by a Source whose files have other names for its tensors.
type Origin interface {
	// Origin names the files and tensors that a tensor is made of, for messages.
	Origin(name string) string
}

type finite struct {
	Source
	types map[string]string
}

func (f *finite) Read(name string, box mpu.Piece, dst []byte) error {
	var odd atomic.Bool
	err := ReadWatched(f.Source, name, box, dst, func(raw []byte) {
		if FirstNonFinite(f.types[name], raw) >= 0 {
			odd.Store(true)
		}
	})
	if err != nil || !odd.Load() {
		return err
	}
	count, first, err := f.count(name)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("%s: tensor %q", f.Info().Path, name)
	if o, ok := f.Source.(Origin); ok {
		where = o.Origin(name)
	}
	return exitcode.Errorf(exitcode.BadData, "%s: %d values are NaN or infinite, the first at element %d; use convert --allow-nan to accept them", where, count, first)
}

// count reads the complete tensor: a box says too little.
func (f *finite) count(name string) (count, first int64, err error) {
	for _, t := range f.Tensors() {
		if t.Name != name {
			continue
		}
		at, width := int64(0), Width(t.DType)
		err = ByRows(f.Source, t, 4<<20, func(_ mpu.Piece, raw []byte) error {
			for done := int64(0); ; {
				i := FirstNonFinite(t.DType, raw[done*width:])
				if i < 0 {
					break
				}
				if count++; count == 1 {
					first = at + done + i
				}
				done += i + 1
			}
			at += int64(len(raw)) / width
			return nil
		})
	}
	return count, first, err
}

// exponent is the bits that are all set in NaN and infinity: of one element, and
// of all elements of a word of eight bytes. Adding the lowest of them to such an
// element, and to no other, carries into the sign bit.
type exponent struct {
	width           int64
	one             uint64
	word, low, sign uint64
}

var exponents = map[string]exponent{
	"F64":  {8, 0x7ff << 52, 0x7ff << 52, 1 << 52, 1 << 63},
	"F32":  {4, 0xff << 23, 0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000},
	"BF16": {2, 0xff << 7, 0x7f807f807f807f80, 0x0080008000800080, 0x8000800080008000},
	"F16":  {2, 0x1f << 10, 0x7c007c007c007c00, 0x0400040004000400, 0x8000800080008000},
}

// FirstNonFinite is the index of the first element of raw that is not finite; -1: none.
func FirstNonFinite(dtype string, raw []byte) int64 {
	e, ok := exponents[dtype]
	if !ok {
		return -1
	}
	for at := finiteBytes(raw, e); at+int(e.width) <= len(raw); at += int(e.width) {
		var v uint64
		switch e.width {
		case 8:
			v = le.Uint64(raw[at:])
		case 4:
			v = uint64(le.Uint32(raw[at:]))
		default:
			v = uint64(le.Uint16(raw[at:]))
		}
		if v&e.one == e.one {
			return int64(at) / e.width
		}
	}
	return -1
}
