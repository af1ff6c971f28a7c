package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Region is the tensor-parallel part of a layout as layers see it: the ranks
// that share each layer, and how activations lie outside the cut layers.
type Region struct {
	*comm.Group
	Sequence bool // outside, a rank holds [s/tp·b, h], its stretch of positions, instead of [s·b, h]
	ByRow    bool // forward, a row has the same bits whatever other rows there are
	Leaves   int  // of the axes that the ranks cut, whose sums are trees of these (--reduction-leaves); 0: sums are not cut
	Overlap  bool // where rows are gathered or scattered, products are made in pieces meanwhile
}

// byRow is the flag as products take it.
func (r Region) byRow() int32 {
	if r.ByRow {
		return 1
	}
	return 0
}

// Cut reports whether activations outside the region are pieces of the sequence.
func (r Region) Cut() bool { return r.Sequence && r.Size() > 1 }

// Rows is how many of n rows a rank holds outside the region.
func (r Region) Rows(n int64) int64 {
	if r.Cut() {
		return n / int64(r.Size())
	}
	return n
}

// Positions are those of the rows that a rank holds outside the region.
func (r Region) Positions(all Positions) Positions {
	if r.Cut() {
		return all.Cut(r.Rank(), r.Size())
	}
	return all
}

// Own views the rank's rows [rows/tp, ...] of an uncut tensor [rows, ...].
func (r Region) Own(full device.Tensor) device.Tensor {
	n := r.Rows(full.Shape[0])
	if n == full.Shape[0] {
		return full
	}
	return full.Slice(0, n*int64(r.Rank()), n)
}

// The mappings between the region and what lies outside come in pairs: what is
// the identity forward is a reduction backward, and the other way round (Shoeybi
// et al., arXiv 1909.08053, section 3: f and g; Korthikanti et al., arXiv
// 2205.05198, section 4.2.2, for their sequence-parallel twins). Each starts its
// collective and hands back the Work, so that a product can run meanwhile; the
// tensors are the collective's until Wait.

// CopyToRegionBackward: every rank used the same input, so its gradient is the
// sum of theirs. The forward is the identity.
func CopyToRegionBackward(r Region, dx device.Tensor) comm.Work { return r.AllReduce(dx, comm.Sum) }

// ReduceFromRegionForward: every rank holds a partial sum of y. The backward is
// the identity.
func ReduceFromRegionForward(r Region, y device.Tensor) comm.Work { return r.AllReduce(y, comm.Sum) }

// ScatterToRegionForward views the rank's columns of x [rows, n].
func ScatterToRegionForward(r Region, x device.Tensor) device.Tensor {
	n := x.Last() / int64(r.Size())
	return x.Slice(1, n*int64(r.Rank()), n)
}

// ScatterToRegionBackward: each rank has the gradient of its columns, dy [rows, n/tp]; dx is [rows, n].
func ScatterToRegionBackward(r Region, d *device.Device, dx, dy device.Tensor) error {
	return gatherColumns(r, d, dx, dy)
}

// GatherFromRegionForward joins the ranks' columns x [rows, n] to y [rows, tp·n].
func GatherFromRegionForward(r Region, d *device.Device, y, x device.Tensor) error {
	return gatherColumns(r, d, y, x)
}

// GatherFromRegionBackward views the rank's columns [rows, n] of dy [rows, tp·n], which is the same on
// every rank.
func GatherFromRegionBackward(r Region, dy device.Tensor) device.Tensor {
	return ScatterToRegionForward(r, dy)
}

// gatherColumns sets full [rows, tp·n] from own [rows, n]. What arrives is rank
// by rank, so columns are put next to each other here.
func gatherColumns(r Region, d *device.Device, full, own device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	size, rows, n := int64(r.Size()), own.Shape[0], own.Last()
	if !own.Contiguous() {
		packed := s.Like(own)
		d.Copy(packed, own)
		own = packed
	}
	ranks := s.Alloc(own.DType, size, rows, n)
	if err := r.AllGather(ranks, own).Wait(); err != nil {
		return err
	}
	columns := device.Strided(full.Data, full.DType, []int64{size, rows, n}, []int64{n, full.Stride[0], 1})
	d.Copy(columns, ranks)
	return nil
}

// GatherFromSequenceForward joins the ranks' rows x [s/tp·b, h] to y [s·b, h] for
// a layer of the region. Its backward is ReduceScatterToSequenceForward: each rank has
// a partial gradient of all rows.
func GatherFromSequenceForward(r Region, y, x device.Tensor) comm.Work { return r.AllGather(y, x) }

// ReduceScatterToSequenceForward: each rank has a partial sum of all rows of y
// [s·b, h]; it keeps the sum of its own. Its backward is GatherFromSequenceForward.
func ReduceScatterToSequenceForward(r Region, own, y device.Tensor) comm.Work {
	return r.ReduceScatter(own, y)
}

// entering is x as a layer of the region needs it: uncut. Work is under way
// where it has to be joined first.
func entering(r Region, s *device.Scope, x device.Tensor) (full device.Tensor, w comm.Work) {
	if !r.Cut() {
		return x, nil
	}
	full = s.Alloc(x.DType, x.Shape[0]*int64(r.Size()), x.Shape[1])
	return full, GatherFromSequenceForward(r, full, x)
}

// leaving is where a layer of the region writes its partial sum of y: y itself,
// or all rows where y is the rank's piece, and in the type of partial sums.
func leaving(r Region, s *device.Scope, y device.Tensor) device.Tensor {
	dtype := r.Partial(y.DType)
	switch {
	case r.Cut():
		return s.Alloc(dtype, y.Shape[0]*int64(r.Size()), y.Shape[1])
	case r.Size() > 1 && dtype != y.DType:
		return s.Alloc(dtype, y.Dims()...)
	}
	return y
}

// leave starts the sum of the ranks' parts into y; part is leaving's.
func leave(r Region, d *device.Device, y, part device.Tensor) comm.Work {
	switch {
	case r.Size() == 1:
		return nil
	case r.Leaves > 0:
		return r.addLeaves(d, y, part)
	case r.Cut():
		return ReduceScatterToSequenceForward(r, y, part)
	}
	return ReduceFromRegionForward(r, y)
}

// wait is Work.Wait where there is work.
func wait(w comm.Work) error {
	if w == nil {
		return nil
	}
	return w.Wait()
}

// Enter joins the rows of x [rows, n] that the ranks of the region hold outside to all rows, in
// scope s: x itself without sequence parallelism.
func Enter(r Region, s *device.Scope, x device.Tensor) (device.Tensor, error) {
	full, work := entering(r, s, x)
	return full, wait(work)
}

// LeavePartial sets y [rows outside, ...] to the sum over ranks of part [tokens, ...], which each has
// of all rows: the backward of Enter, where each rank used all of it. With leaves part is a tree of
// those here, of type Region.Partial.
func LeavePartial(r Region, d *device.Device, y, part device.Tensor) error {
	if !r.Cut() && (r.Leaves == 0 || r.Size() == 1) {
		d.Copy(y, part)
		part = y
	}
	return wait(leave(r, d, y, part))
}
