package pickle

import (
	"fmt"
	"math"
	"math/bits"

	"monotron/internal/parallelio/blocks"
)

// Storage is a stretch of elements in a file of torch.save.
type Storage struct {
	Key   string // of its record, data/<key>
	DType string // as safetensors spells it; U8 for an untyped one
	Len   int64  // elements

	// Tasks make the elements, one behind the other, for a storage that is to be
	// saved and was not read.
	Tasks []blocks.Task

	record payload // nil where the file has none
}

// payload is where a storage's bytes are.
type payload interface {
	// readAt fills dst with bytes at.. of the record, little-endian elements of
	// width bytes.
	readAt(dst []byte, at, width int64) error
	size() int64
}

// Tensor is a view of a Storage.
type Tensor struct {
	Storage *Storage
	DType   string // as safetensors spells it
	Offset  int64  // of its first element in the storage, in elements
	Shape   []int64
	Strides []int64 // in elements

	problem error // why it cannot be read
}

// NewTensor is a tensor to be saved; tasks make its elements, row-major and
// little-endian.
func NewTensor(dtype string, shape []int64, tasks []blocks.Task) *Tensor {
	t := &Tensor{DType: dtype, Shape: shape, Strides: rowMajor(shape)}
	t.Storage = &Storage{DType: dtype, Len: t.Len(), Tasks: tasks}
	return t
}

// Constant is a tensor to be saved that consists of raw.
func Constant(dtype string, shape []int64, raw []byte) *Tensor {
	return NewTensor(dtype, shape, []blocks.Task{{Bytes: int64(len(raw)), Fill: func(dst []byte) error {
		copy(dst, raw)
		return nil
	}}})
}

// View is a part of s that lies row-major from an element on.
func (s *Storage) View(offset int64, shape []int64) *Tensor {
	return &Tensor{Storage: s, DType: s.DType, Offset: offset, Shape: shape, Strides: rowMajor(shape)}
}

func rowMajor(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	n := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = n
		n *= max(1, shape[d])
	}
	return strides
}

// Width is the bytes of an element.
func (t *Tensor) Width() int64 { return widths[t.DType] }

// Len is the number of elements.
func (t *Tensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the elements, each once.
func (t *Tensor) Bytes() int64 { return t.Len() * t.Width() }

// Check reports why a tensor cannot be read: nonsensical sizes, or a storage that
// is too short, or missing.
func (t *Tensor) Check() error { return t.problem }

// ReadAt fills dst with what the storage holds from the tensor's first element
// on, beginning with byte `at`, in little-endian order.
func (t *Tensor) ReadAt(dst []byte, at int64) error {
	if t.problem != nil {
		return t.problem
	}
	from := t.Offset*t.Width() + at
	if at < 0 || from > t.Storage.record.size()-int64(len(dst)) {
		return fmt.Errorf("%[2]d bytes from byte %[1]d are beyond the end of storage data/%[3]s", from, len(dst), t.Storage.Key)
	}
	return t.Storage.record.readAt(dst, from, t.Width())
}

// Contiguous reports whether its elements lie one behind the other, row-major.
func (t *Tensor) Contiguous() bool {
	n := int64(1)
	for d := len(t.Shape) - 1; d >= 0; d-- {
		if t.Shape[d] != 1 && t.Strides[d] != n {
			return false
		}
		n *= t.Shape[d]
	}
	return true
}

// Read returns the elements row-major, whatever their order in the file.
func (t *Tensor) Read() ([]byte, error) {
	if t.problem != nil {
		return nil, t.problem
	}
	if t.Len() == 0 {
		return []byte{}, nil
	}
	if t.Contiguous() {
		raw := make([]byte, t.Bytes())
		return raw, t.ReadAt(raw, 0)
	}
	return t.gather()
}

func (t *Tensor) gather() ([]byte, error) {
	span := t.span()
	if t.Len() > 4*span+1<<20 {
		return nil, fmt.Errorf("it has %d elements but stores only %d of them; no known checkpoint repeats elements so often", t.Len(), span)
	}
	stored := make([]byte, span*t.Width())
	if err := t.ReadAt(stored, 0); err != nil {
		return nil, err
	}
	w := t.Width()
	out := make([]byte, t.Bytes())
	at := make([]int64, len(t.Shape))
	for i := int64(0); i < t.Len(); i++ {
		from := int64(0)
		for d, n := range at {
			from += n * t.Strides[d]
		}
		copy(out[i*w:(i+1)*w], stored[from*w:])
		for d := len(at) - 1; d >= 0; d-- {
			if at[d]++; at[d] < t.Shape[d] {
				break
			}
			at[d] = 0
		}
	}
	return out, nil
}

// span is how many stored elements lie between the first and the last, both in.
func (t *Tensor) span() int64 {
	last := int64(0)
	for d, n := range t.Shape {
		last += (n - 1) * t.Strides[d]
	}
	return last + 1
}

// check finds why the tensor cannot be read.
func (t *Tensor) check() error {
	// n: bytes of all elements; last: the last element that is reached. Both without overflow.
	n, last := uint64(t.Width()), uint64(t.Offset)
	empty := false
	for _, size := range t.Shape {
		empty = empty || size == 0
	}
	for d, size := range t.Shape {
		if size < 0 || t.Strides[d] < 0 {
			return fmt.Errorf("its sizes %v and strides %v must not be negative", t.Shape, t.Strides)
		}
		if empty {
			continue
		}
		hi, lo := bits.Mul64(n, uint64(size))
		if n = lo; hi != 0 || lo > math.MaxInt64 {
			return fmt.Errorf("its sizes %v are too large", t.Shape)
		}
		hi, lo = bits.Mul64(uint64(size-1), uint64(t.Strides[d]))
		if last += lo; hi != 0 || last > math.MaxInt64 || lo > math.MaxInt64 {
			return fmt.Errorf("its sizes %v with strides %v are too large", t.Shape, t.Strides)
		}
	}
	if t.Offset < 0 {
		return fmt.Errorf("it starts at element %d of its storage; the number must not be negative", t.Offset)
	}
	if empty {
		return nil
	}
	// That element must be in the storage.
	s := t.Storage
	if s.record == nil {
		return fmt.Errorf("its storage data/%s is missing from the file", s.Key)
	}
	if stored := s.record.size() / t.Width(); int64(last) >= stored {
		return fmt.Errorf("its sizes %v and strides %v reach, from element %d, up to element %d, but its storage data/%s has only %d elements", t.Shape, t.Strides, t.Offset, last, s.Key, stored)
	}
	return nil
}

// buildTensor is _rebuild_tensor[_v2](storage, offset, size, strides, ..).
func buildTensor(m *machine, name string, args []Value) (Value, error) {
	if len(args) < 4 {
		return nil, m.badArgs(name, args)
	}
	s, ok := args[0].(*Storage)
	if !ok {
		return nil, m.badArgs(name, args)
	}
	return makeTensor(m, name, args, s.DType)
}

// buildTensorV3 is _rebuild_tensor_v3(untyped storage, offset, size, strides,
// requires_grad, hooks, dtype, ..).
func buildTensorV3(m *machine, name string, args []Value) (Value, error) {
	if len(args) < 7 {
		return nil, m.badArgs(name, args)
	}
	d, ok := args[6].(DType)
	if !ok {
		return nil, m.badArgs(name, args)
	}
	return makeTensor(m, name, args, dtypes[string(d)])
}

func makeTensor(m *machine, name string, args []Value, dtype string) (Value, error) {
	const maxRank = 64
	s, ok := args[0].(*Storage)
	offset, okOffset := args[1].(int64)
	shape, okShape := Ints(args[2])
	strides, okStrides := Ints(args[3])
	if !ok || !okOffset || !okShape || !okStrides || len(shape) != len(strides) || len(shape) > maxRank {
		return nil, m.badArgs(name, args)
	}
	t := &Tensor{Storage: s, DType: dtype, Offset: offset, Shape: shape, Strides: strides}
	t.problem = t.check()
	return t, nil
}
