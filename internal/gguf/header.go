package gguf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"

	"monotron/internal/exitcode"
)

const (
	magic = "GGUF"
	// maxHeader bounds what metadata and the list of tensors take, in bytes.
	maxHeader = 128 << 20
	// maxKeys and maxTensors are far above any model's.
	maxKeys    = 1 << 16
	maxTensors = 1 << 20

	maxKey       = 1<<16 - 1 // bytes of a key
	maxName      = 64        // bytes of a tensor's name
	maxRank      = 4         // dimensions of a tensor
	maxAlignment = 1 << 20

	alignmentKey     = "general.alignment"
	defaultAlignment = 32
)

// header reads the part of a file before the data, front to back.
type header struct {
	path string
	in   *bufio.Reader
	at   int64 // bytes read
	size int64 // of the file
}

func quote(s string) string { return strconv.Quote(s) }

func (h *header) bad(format string, args ...any) error {
	return badData(h.path, h.at, fmt.Errorf(format, args...))
}

func (h *header) left() int64 { return h.size - h.at }

// take reads n bytes for what, which is for messages.
func (h *header) take(n int64, what string) ([]byte, error) {
	switch {
	case n > h.left():
		return nil, h.bad("%s needs %d bytes, but only %d bytes of the file are left: the file is truncated or damaged", what, n, h.left())
	case h.at+n > maxHeader:
		return nil, h.bad("%s is beyond the first %d bytes, which is the limit for metadata", what, maxHeader)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(h.in, raw); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, exitcode.Errorf(exitcode.IO, "%s: byte %d: %w", h.path, h.at, err)
	}
	h.at += n
	return raw, nil
}

func (h *header) uint64(what string) (uint64, error) {
	raw, err := h.take(8, what)
	if err != nil {
		return 0, err
	}
	return le.Uint64(raw), nil
}

func (h *header) uint32(what string) (uint32, error) {
	raw, err := h.take(4, what)
	if err != nil {
		return 0, err
	}
	return le.Uint32(raw), nil
}

// text reads a string of at most `most` bytes.
func (h *header) text(what string, most int64) (string, error) {
	n, err := h.uint64("the length of " + what)
	if err != nil {
		return "", err
	}
	if n > uint64(most) {
		return "", h.bad("%s has %d bytes; at most %d are allowed", what, n, most)
	}
	raw, err := h.take(int64(n), what)
	return string(raw), err
}

// counts reads magic, version and the numbers of tensors and keys.
func (h *header) counts() (version uint32, tensors, keys int, err error) {
	if h.size < 24 {
		return 0, 0, 0, h.bad("%d bytes are too few for a GGUF file", h.size)
	}
	raw, err := h.take(24, "the header")
	if err != nil {
		return 0, 0, 0, err
	}
	version = le.Uint32(raw[4:])
	t, k := le.Uint64(raw[8:]), le.Uint64(raw[16:])
	switch {
	case string(raw[:4]) != magic:
		err = h.bad("the file begins with %q; a GGUF file begins with %q", raw[:4], magic)
	case version&0xffff == 0:
		err = h.bad("the file is big-endian, which is not supported")
	case version != 2 && version != 3:
		err = h.bad("the file has version %d; versions 2 and 3 are supported", version)
	case t > maxTensors:
		err = h.bad("the header declares %d tensors; at most %d are supported", t, maxTensors)
	case t > uint64(h.left())/24: // an empty name, no dimension
		err = h.bad("the header declares %d tensors, which do not fit into the file's %d bytes: the file is truncated or damaged", t, h.size)
	case k > maxKeys:
		err = h.bad("the header declares %d metadata keys; at most %d are supported", k, maxKeys)
	case k > uint64(h.left())/13:
		err = h.bad("the header declares %d metadata keys, which do not fit into the file's %d bytes: the file is truncated or damaged", k, h.size)
	}
	return version, int(t), int(k), err
}

// metadata reads all keys.
func (h *header) metadata(n int) (keys []string, values map[string]Value, err error) {
	values = map[string]Value{}
	for i := range n {
		key, err := h.name(fmt.Sprintf("metadata key %d", i), maxKey)
		if err != nil {
			return nil, nil, err
		}
		if _, twice := values[key]; twice {
			return nil, nil, h.bad("metadata key %q occurs twice", key)
		}
		kind, err := h.uint32("the type of metadata " + quote(key))
		if err != nil {
			return nil, nil, err
		}
		if values[key], err = h.value(key, valueType(kind)); err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	return keys, values, nil
}

// alignment is what offsets are multiples of.
func (h *header) alignment(values map[string]Value) (int64, error) {
	v, ok := values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	n, ok := v.Int()
	if !ok {
		return 0, h.bad("%s has the type %s; it must be an integer", alignmentKey, v.Kind())
	}
	if n < 1 || n > maxAlignment || n&(n-1) != 0 {
		return 0, h.bad("%s is %d; it must be a power of two of at most %d", alignmentKey, n, maxAlignment)
	}
	return n, nil
}

// tensor reads the description of one tensor; its offset counts from the data.
func (h *header) tensor(i int) (t Tensor, err error) {
	what := fmt.Sprintf("the name of tensor %d", i)
	if t.Name, err = h.name(what, maxName); err != nil {
		return t, err
	}
	what = "tensor " + quote(t.Name)
	rank, err := h.uint32(what)
	if err != nil {
		return t, err
	}
	if rank < 1 || rank > maxRank {
		return t, h.bad("%s has %d dimensions; it must have 1 to %d", what, rank, maxRank)
	}
	// Dimensions, the fastest first. Their product is checked before it is used.
	elements := uint64(1)
	for range rank {
		n, err := h.uint64(what)
		if err != nil {
			return t, err
		}
		high, product := bits.Mul64(elements, n)
		if n < 1 {
			return t, h.bad("%s: dimension %d is 0", what, len(t.Dims))
		}
		if high != 0 || product > 1<<60 {
			return t, h.bad("%s is too large: the dimensions %v and %d have more than 2^60 elements", what, t.Dims, n)
		}
		elements = product
		t.Dims = append(t.Dims, int64(n))
	}
	// The type and the position of the data: complete blocks in each row, and within the file.
	kind, err := h.uint32(what)
	if err != nil {
		return t, err
	}
	offset, err := h.uint64(what)
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	switch {
	case !t.Type.Known():
		return t, h.bad("%s is stored as %v, which is not supported", what, t.Type)
	case t.Dims[0]%t.Type.BlockElements() != 0:
		return t, h.bad("%s: rows of %d elements cannot be divided into blocks of %d (%v)", what, t.Dims[0], t.Type.BlockElements(), t.Type)
	case offset > uint64(h.size):
		return t, h.bad("%s begins at byte %d of the data, which is beyond the end of the file", what, offset)
	}
	t.Offset = int64(offset)
	t.Bytes = t.Type.Bytes(int64(elements))
	return t, nil
}

// locate checks where the tensors lie, and makes their offsets the file's. The data
// starts at the next multiple of the alignment.
func (h *header) locate(list []Tensor, alignment int64) error {
	start := (h.at + alignment - 1) / alignment * alignment
	order := make([]int, len(list))
	for i := range list {
		t := &list[i]
		order[i] = i
		if t.Offset%alignment != 0 {
			return h.bad("tensor %q begins at byte %d of the data; offsets must be multiples of the alignment %d", t.Name, t.Offset, alignment)
		}
		if t.Offset > h.size-start || t.Bytes > h.size-start-t.Offset {
			return h.bad("tensor %q needs bytes %d to %d of the data, but the file has only %d bytes of data: the file is truncated or damaged", t.Name, t.Offset, t.Offset+t.Bytes, max(0, h.size-start))
		}
		t.Offset += start
	}
	slices.SortFunc(order, func(a, b int) int { return int(min(1, max(-1, list[a].Offset-list[b].Offset))) })
	for k := 1; k < len(order); k++ {
		if a, b := &list[order[k-1]], &list[order[k]]; a.Offset+a.Bytes > b.Offset {
			return h.bad("tensors %q and %q overlap in the file", a.Name, b.Name)
		}
	}
	return nil
}
