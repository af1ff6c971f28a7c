package mpu

import (
	"math"

	"monotron/csrc/device"
)

// expertBranch is a low-rank addition to each expert's weight: W[e] + Scale·B[e]·A[e] with
// A [E, rank, in] and B [E, out, rank].
type expertBranch struct {
	Branch
	a, b *Param
}

// Adapt adds low-rank branches to the experts, before their parameters are allocated. A of a layer
// cut by rows, and B of one cut by columns, are not cut: every rank that shares the experts has
// them, with a partial gradient.
func (l *ExpertLinear) Adapt(branches []Branch) {
	for _, c := range branches {
		name, all, here, first := AdapterPrefix+c.Name, int64(l.at.Experts), int64(l.at.Here), int64(l.at.First)
		a := &Param{Name: name + ".lora_A.weight", Init: Init{Kind: InitUniform, Value: 1 / math.Sqrt(float64(c.In))}, Global: []int64{all, c.Rank, c.In}}
		b := &Param{Name: name + ".lora_B.weight", Init: Init{Kind: InitConstant}, Global: []int64{all, c.Out, c.Rank}, Role: AdapterUp}
		partial := a
		if l.rows == nil {
			partial = b
			n := l.Weight.Shape[2]
			a.Shape = []int64{here, c.Rank, n}
			a.Pieces = []Piece{{From: []int64{first, 0, n * int64(l.at.Part)}, Size: a.Shape}}
			b.stackRows(l.at, [][2]int64{{0, c.Out}})
		} else {
			a.stackRows(l.at, [][2]int64{{0, c.Rank}})
			b.stackRows(l.at, l.rows)
		}
		for _, p := range []*Param{a, b} {
			p.Family, p.Owner = Experts, true
		}
		if l.at.Sharers != nil {
			partial.PartialOn(Region{Group: l.at.Sharers})
		}
		l.branches = append(l.branches, &expertBranch{c, a, b})
	}
}

// low is Scale·x·A[e]ᵀ [rows, rank] of rows sorted by expert.
func (b *expertBranch) low(d *device.Device, s *device.Scope, x, offsets device.Tensor) device.Tensor {
	low := s.Alloc(x.DType, x.Shape[0], b.Rank)
	d.GroupedMatmul(device.GroupedMatmulArgs{C: low, A: x, B: b.a.Value, Offsets: offsets, TransB: 1})
	b.scale(d, low)
	return low
}

// forward adds the branch of x [rows, in here] to y [rows, out here].
func (b *expertBranch) forward(d *device.Device, y, x, offsets device.Tensor) {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	u := s.Like(y)
	d.GroupedMatmul(device.GroupedMatmulArgs{C: u, A: b.low(d, s, x, offsets), B: b.b.Value, Offsets: offsets, TransB: 1})
	addTo(d, y, u)
}

// backward adds the branch's part to dx [rows, in here], and to the gradients of A and B.
func (b *expertBranch) backward(d *device.Device, dx, dy, x, offsets device.Tensor) {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	if !b.b.Frozen {
		d.GroupedMatmul(device.GroupedMatmulArgs{C: b.b.Grad, A: dy, B: b.low(d, s, x, offsets), Offsets: offsets, TransA: 1})
	}
	dlow := s.Alloc(dy.DType, dy.Shape[0], b.Rank)
	d.GroupedMatmul(device.GroupedMatmulArgs{C: dlow, A: dy, B: b.b.Value, Offsets: offsets})
	b.scale(d, dlow)
	if !b.a.Frozen {
		d.GroupedMatmul(device.GroupedMatmulArgs{C: b.a.Grad, A: dlow, B: x, Offsets: offsets, TransA: 1})
	}
	back := s.Like(dx)
	d.GroupedMatmul(device.GroupedMatmulArgs{C: back, A: dlow, B: b.a.Value, Offsets: offsets})
	addTo(d, dx, back)
}
