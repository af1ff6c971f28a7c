package devicetest

import (
	"bytes"
	"math"
	"slices"
	"unsafe"

	"monotron/csrc/device"
)

// Env is the memory of one case on one device, and the random numbers its
// inputs are made of.
type Env struct {
	Dev     *device.Device
	oracle  *device.Device
	name    string
	random  uint64
	scope   *device.Scope
	buffers []buffer
	refused error // by the vendor's attention, where a case has some
}

// buffer is a piece of memory and, after the call, what became of it.
type buffer struct {
	name          string
	full          device.Tensor
	before, after []byte
	out           bool
	tol           Tol
}

func newEnv(dev, oracle *device.Device, name string) *Env {
	return &Env{Dev: dev, oracle: oracle, name: name, refused: errNotAsked, random: device.StreamKey(1, name), scope: dev.Arena.Scope(device.Workspace)}
}

// twin is an empty Env on the oracle that will make the same inputs.
func (e *Env) twin() *Env { return newEnv(e.oracle, e.oracle, e.name) }

// word is the next random number.
func (e *Env) word() uint64 {
	e.random++
	return device.Mix(e.random)
}

// unit is uniform in ±√3: mean 0, variance 1, never exactly 0.
func (e *Env) unit() float64 {
	return (float64(e.word()>>11) + 0.5 - 1<<52) / (1 << 52) * 1.7320508075688772
}

// below is uniform in 0..n-1.
func (e *Env) below(n int64) int64 { return int64(e.word() % uint64(n)) }

// Make writes f(0), f(1), ... into a new tensor: an input.
func (e *Env) Make(name string, d device.DType, f func(i int) float64, shape ...int64) device.Tensor {
	t := e.scope.Alloc(d, shape...)
	v := make([]float64, t.Len())
	for i := range v {
		v[i] = f(i)
	}
	return e.write(name, t, device.FromFloat64(d, v))
}

func (e *Env) write(name string, t device.Tensor, raw []byte) device.Tensor {
	e.Dev.Write(t, raw)
	e.buffers = append(e.buffers, buffer{name: name, full: t, before: raw})
	return t
}

// In is an input of mean 0 and variance 1.
func (e *Env) In(name string, d device.DType, shape ...int64) device.Tensor {
	return e.Scaled(name, d, 0, 1, shape...)
}

// Scaled is an input of a mean and a standard deviation.
func (e *Env) Scaled(name string, d device.DType, mean, deviation float64, shape ...int64) device.Tensor {
	return e.Make(name, d, func(int) float64 { return mean + deviation*e.unit() }, shape...)
}

// Ints is an i32 input of numbers in 0..below-1.
func (e *Env) Ints(name string, below int64, shape ...int64) device.Tensor {
	return e.Make(name, device.I32, func(int) float64 { return float64(e.below(below)) }, shape...)
}

// List is an input of given values.
func (e *Env) List(name string, d device.DType, values ...float64) device.Tensor {
	return e.Make(name, d, func(i int) float64 { return values[i] }, int64(len(values)))
}

// Out is an output that the op writes without reading: it starts as NaN, of integers as bytes of 0x80, since what
// integer a NaN becomes is up to the processor.
func (e *Env) Out(name string, tol Tol, d device.DType, shape ...int64) device.Tensor {
	t := e.scope.Alloc(d, shape...)
	first := bytes.Repeat([]byte{0x80}, int(d.Size()))
	if d == device.F64 || slices.Contains(valueTypes, d) {
		first = device.FromFloat64(d, []float64{math.NaN()})
	}
	return e.Changes(e.write(name, t, bytes.Repeat(first, int(t.Len()))), tol)
}

// Changes marks a tensor made before as one the op writes.
func (e *Env) Changes(t device.Tensor, tol Tol) device.Tensor {
	for i := range e.buffers {
		if e.buffers[i].full.Data == t.Data {
			e.buffers[i].out, e.buffers[i].tol = true, tol
		}
	}
	return t
}

// From makes an input from the twin's result.
func (e *Env) From(twin *Env, name string, src device.Tensor) device.Tensor {
	raw := make([]byte, src.Bytes())
	twin.Dev.Read(raw, src)
	return e.write(name, e.scope.Alloc(src.DType, src.Dims()...), raw)
}

// Values reads a contiguous tensor.
func (e *Env) Values(t device.Tensor) []float64 {
	raw := make([]byte, t.Bytes())
	e.Dev.Read(raw, t)
	return device.ToFloat64(t.DType, raw)
}

// collect reads all buffers after the call.
func (e *Env) collect() {
	for i := range e.buffers {
		b := &e.buffers[i]
		b.after = make([]byte, b.full.Bytes())
		e.Dev.Read(b.after, b.full)
	}
}

// padded is the shape with a row of `pad` more elements; narrow views the
// tensor without them. With an odd pad no row but the first is aligned.
func padded(pad int64, shape ...int64) []int64 {
	wide := append([]int64{}, shape...)
	wide[len(wide)-1] += pad
	return wide
}

func narrow(t device.Tensor, pad int64) device.Tensor {
	return t.Slice(int(t.Rank)-1, 0, t.Last()-pad)
}

// offset views a tensor of another shape and strides from element `at` on.
func offset(t device.Tensor, at int64, shape, stride []int64) device.Tensor {
	return device.Strided(unsafe.Add(t.Data, at*t.DType.Size()), t.DType, shape, stride)
}
