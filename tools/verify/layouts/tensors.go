package layouts

import (
	"fmt"
	"math"
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// tensor is a global tensor put together from the ranks' pieces.
type tensor struct {
	shape  []int64
	values []float32 // what ranks hold of gradients, weights and streams has no more digits
	from   []given
}

// given says which rank gave a box.
type given struct {
	rank  int
	piece mpu.Piece
}

// tensors by name. Copies of a number on several ranks must be equal to the bit.
type tensors map[string]*tensor

// add takes a rank's part of a tensor, divided by factor.
func (ts tensors) add(rank int, d *device.Device, s mpu.Stored, factor float64) error {
	raw := make([]byte, s.Tensor.Bytes())
	d.Read(raw, s.Tensor)
	local := device.ToFloat64(s.Tensor.DType, raw)
	for i := range local {
		local[i] /= factor
	}
	if err := d.Err(); err != nil {
		return err
	}
	return ts.addBoxes(rank, s.Name, s.Global, local, s.Pieces)
}

// addBoxes copies a rank's boxes of a tensor into the complete one.
func (ts tensors) addBoxes(rank int, name string, global []int64, local []float64, pieces []mpu.Piece) error {
	// A tensor that is met for the first time is all NaN: what no rank gives stays so.
	t := ts[name]
	if t == nil {
		n := int64(1)
		for _, size := range global {
			n *= size
		}
		t = &tensor{shape: global, values: make([]float32, n)}
		for i := range t.values {
			t.values[i] = float32(math.NaN())
		}
		ts[name] = t
	}
	// Copies on several ranks must be equal.
	for _, p := range pieces {
		var clash error
		t.each(p, func(global, at int64) {
			v := float32(local[at])
			if before := t.values[global]; before == before && before != v && clash == nil {
				clash = fmt.Errorf("%s: element %v is %g on rank %d but %g on rank %d, although both ranks have copies of it",
					name, coordinates(t.shape, global), before, t.giver(global), v, rank)
			}
			t.values[global] = v
		})
		if clash != nil {
			return clash
		}
		t.from = append(t.from, given{rank, p})
	}
	return nil
}

// each visits the elements of a box: index in the global tensor, index in the
// local buffer.
func (t *tensor) each(p mpu.Piece, visit func(global, local int64)) {
	n := p.Len()
	for i := range n {
		rest, global, stride := i, int64(0), int64(1)
		for axis := len(t.shape) - 1; axis >= 0; axis-- {
			global += (p.From[axis] + rest%p.Size[axis]) * stride
			rest /= p.Size[axis]
			stride *= t.shape[axis]
		}
		visit(global, p.Local+i)
	}
}

// giver is the first rank whose pieces hold an element.
func (t *tensor) giver(global int64) int {
	at := coordinates(t.shape, global)
	i := slices.IndexFunc(t.from, func(h given) bool {
		for axis, x := range at {
			if x < h.piece.From[axis] || x >= h.piece.From[axis]+h.piece.Size[axis] {
				return false
			}
		}
		return true
	})
	if i < 0 {
		return -1
	}
	return t.from[i].rank
}

func coordinates(shape []int64, i int64) []int64 {
	at := make([]int64, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return at
}

// missing counts the elements that no rank gave.
func (t *tensor) missing() (n int) {
	for _, v := range t.values {
		if v != v {
			n++
		}
	}
	return n
}

func norm(values []float32) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// norm is the norm of all tensors together.
func (ts tensors) norm() float64 {
	sum := 0.0
	for _, t := range ts {
		n := norm(t.values)
		sum += n * n
	}
	return math.Sqrt(sum)
}
