// Package compare finds what differs between two checkpoints of any formats and
// layouts, tensor by tensor and setting by setting. Both are streamed.
package compare

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"sync"

	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Options say what counts as a difference.
type Options struct {
	Abs, Rel float64 // values that differ by at most Abs + Rel*|a| do not count
}

// Tensor is the comparison of one tensor, or one that only one side has.
type Tensor struct {
	Name   string  `json:"name"`
	DTypeA string  `json:"dtype_a,omitempty"` // "": a does not have it
	DTypeB string  `json:"dtype_b,omitempty"`
	ShapeA []int64 `json:"shape_a,omitempty"`
	ShapeB []int64 `json:"shape_b,omitempty"`

	Elements  int64   `json:"elements"`  // compared
	Different int64   `json:"different"` // of them, beyond the tolerance
	MaxAbs    float64 `json:"max_abs"`   // over pairs of finite values
	MaxRel    float64 `json:"max_rel"`   // |a-b| / |a|, where a is not 0
	NormA     float64 `json:"norm_a"`    // over finite values
	NormB     float64 `json:"norm_b"`
	NaNA      int64   `json:"nan_a"` // NaN and infinities
	NaNB      int64   `json:"nan_b"`
	First     []int64 `json:"first,omitempty"` // index of the first different element
	FirstA    string  `json:"first_a,omitempty"`
	FirstB    string  `json:"first_b,omitempty"`
}

// Equal reports whether nothing about the tensor counts as different.
func (t *Tensor) Equal() bool {
	return t.DTypeA != "" && t.DTypeB != "" && slices.Equal(t.ShapeA, t.ShapeB) && t.Different == 0
}

// Tensors compares all tensors of a and b in a's order, then those that only b has.
func Tensors(a, b checkpoint.Source, o Options) ([]Tensor, error) {
	inB := map[string]checkpoint.Tensor{}
	for _, t := range b.Tensors() {
		inB[t.Name] = t
	}
	var list []Tensor
	seen := map[string]bool{}
	for _, t := range a.Tensors() {
		seen[t.Name] = true
		u := inB[t.Name]
		list = append(list, Tensor{Name: t.Name, DTypeA: t.DType, DTypeB: u.DType, ShapeA: t.Shape, ShapeB: u.Shape})
	}
	for _, t := range b.Tensors() {
		if !seen[t.Name] {
			list = append(list, Tensor{Name: t.Name, DTypeB: t.DType, ShapeB: t.Shape})
		}
	}
	return list, each(list, func(t *Tensor) error {
		if t.DTypeA == "" || t.DTypeB == "" || !slices.Equal(t.ShapeA, t.ShapeB) {
			return nil
		}
		return t.compare(a, b, o)
	})
}

// Copies compares what a checkpoint holds twice, such as tied embeddings of the first
// and the last pipeline stage: a's values are those that are read, b's the copy's.
func Copies(src checkpoint.Source, o Options) ([]Tensor, error) {
	twice, ok := src.(checkpoint.Twice)
	if !ok {
		return nil, nil
	}
	second := twice.Copies()
	var list []Tensor
	for _, t := range second.Tensors() {
		list = append(list, Tensor{Name: t.Name, DTypeA: t.DType, DTypeB: t.DType, ShapeA: t.Shape, ShapeB: t.Shape})
	}
	return list, each(list, func(t *Tensor) error { return t.compare(src, second, o) })
}

// each runs f on every tensor, several at a time, and returns the first error in
// the list's order.
func each(list []Tensor, f func(*Tensor) error) error {
	errs := make([]error, len(list))
	next := make(chan int)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := range next {
				errs[i] = f(&list[i])
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkBytes of each side are compared at a time.
const chunkBytes = 2 << 20

func (t *Tensor) compare(a, b checkpoint.Source, o Options) error {
	t.Elements = checkpoint.Volume(t.ShapeA)
	var other []byte
	var x, y []float64
	squareA, squareB := 0.0, 0.0
	at := int64(0)
	err := checkpoint.ByRows(a, checkpoint.Tensor{Name: t.Name, DType: t.DTypeA, Shape: t.ShapeA}, chunkBytes, func(box mpu.Piece, raw []byte) error {
		n := int(box.Len())
		other = slices.Grow(other[:0], n*int(checkpoint.Width(t.DTypeB)))[:n*int(checkpoint.Width(t.DTypeB))]
		if err := b.Read(t.Name, box, other); err != nil {
			return err
		}
		x, y = slices.Grow(x[:0], n)[:n], slices.Grow(y[:0], n)[:n]
		safetensors.Decode(x, t.DTypeA, raw)
		safetensors.Decode(y, t.DTypeB, other)
		squareA += squares(x, &t.NaNA)
		squareB += squares(y, &t.NaNB)
		if t.DTypeA != t.DTypeB || !bytes.Equal(raw, other) {
			t.values(x, y, at, o)
		}
		at += int64(n)
		return nil
	})
	t.NormA, t.NormB = math.Sqrt(squareA), math.Sqrt(squareB)
	return err
}

// squares sums the finite values' squares and counts the others.
func squares(values []float64, odd *int64) (sum float64) {
	for _, v := range values {
		if v-v != 0 {
			*odd++
			continue
		}
		sum += v * v
	}
	return sum
}

// values compares a stretch that starts at element `at`.
func (t *Tensor) values(x, y []float64, at int64, o Options) {
	for i, v := range x {
		w := y[i]
		if v == w || v != v && w != w {
			continue
		}
		d := math.Abs(v - w)
		if finite := d-d == 0; finite {
			t.MaxAbs = max(t.MaxAbs, d)
			if v != 0 {
				t.MaxRel = max(t.MaxRel, d/math.Abs(v))
			}
			if d <= o.Abs+o.Rel*math.Abs(v) {
				continue
			}
		}
		if t.Different++; t.Different == 1 {
			t.First = index(at+int64(i), t.ShapeA)
			t.FirstA, t.FirstB = number(v), number(w)
		}
	}
}

// index converts an element's row-major number to its indices.
func index(at int64, shape []int64) []int64 {
	out := make([]int64, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		out[d] = at % shape[d]
		at /= shape[d]
	}
	return out
}
