package device

import (
	"fmt"
	"strings"
	"unsafe"
)

//go:generate go run ./internal/generate

// In the comments of argument structs a "value dtype" is F32, BF16 or F16 (F64 too on
// ref), the same for all tensors of a call so marked. Last dimensions are contiguous
// (stride 1). "tokens" is a flattened [s, b]: row i*b+j is position i of sample j.

// A description is all that is declared of an op: the file op_*.go of its
// family has its arguments, which shapes they must have (check) and what it has to do
// (work). `go generate` makes the rest of them: the constants, the table of
// descriptions, the Device's methods, and ops.h for the devices in C.
type description struct {
	name    string
	bytes   uintptr // of the argument struct
	tensors []tensorField
	choices []choiceField
	check   func(args unsafe.Pointer) bool
	work    func(args unsafe.Pointer) Work
	shape   func(args unsafe.Pointer) string // sizes of the computation, for profiles
}

// arguments is what each argument struct says of itself.
type arguments[A any] interface {
	*A
	check() bool  // of shapes
	main() Tensor // the one whose shape names the call
	work() Work
}

// Work is what an op has to do at least: operations of its formula, and bytes
// of its operands, each read or written once.
type Work struct{ FLOPs, Bytes float64 }

func describe[A any, P arguments[A]](name string) description {
	var a A
	d := description{name: name, bytes: unsafe.Sizeof(a)}
	d.tensors, d.choices = fieldsOf[A]()
	d.check = func(args unsafe.Pointer) bool { return P(args).check() }
	d.work = func(args unsafe.Pointer) Work { return P(args).work() }
	d.shape = func(args unsafe.Pointer) string {
		if own, ok := any(P(args)).(interface{ describe() string }); ok {
			return own.describe()
		}
		return P(args).main().String()
	}
	return d
}

// Op numbers an entry of the kernel table.
type Op int32

func (o Op) String() string { return ops[o].name }

// ArgBytes is the size of the op's argument struct.
func (o Op) ArgBytes() int64 { return int64(ops[o].bytes) }

// need panics where shapes do not fit, with the name and shape of every tensor.
func (o Op) need(args unsafe.Pointer) {
	if ops[o].check(args) {
		return
	}
	var shapes []string
	for i := range ops[o].tensors {
		x := &ops[o].tensors[i]
		shapes = append(shapes, fmt.Sprint(x.name, " ", *x.in(args)))
	}
	panic(fmt.Sprintf("device: %s called with %s", o, strings.Join(shapes, ", ")))
}

// ---- shapes ----

func same(a, b Tensor) bool { return a.Rank == b.Rank && a.Shape == b.Shape }

// sameOrNone: b may be left out.
func sameOrNone(a, b Tensor) bool { return !b.Given() || same(a, b) }

func shaped(t Tensor, shape ...int64) bool {
	if int(t.Rank) != len(shape) {
		return false
	}
	for i, n := range shape {
		if t.Shape[i] != n {
			return false
		}
	}
	return true
}

func optional(t Tensor, shape ...int64) bool { return !t.Given() || shaped(t, shape...) }

// ---- work ----

// streamed is the work of an op that does little else than move these.
func streamed(ts ...Tensor) Work { return Work{Bytes: size(ts...)} }

// size is the bytes of tensors; those not given count nothing.
func size(ts ...Tensor) (bytes float64) {
	for _, t := range ts {
		if t.Given() {
			bytes += float64(t.Bytes())
		}
	}
	return bytes
}
