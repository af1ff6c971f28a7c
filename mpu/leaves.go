package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Leaves is where sums over the tokens of a micro-batch are cut, so that every layout and every
// size of a micro-batch adds up the same numbers (--layout-invariant): a leaf is Chunk positions
// of one sample. Rows are i·Batch+j, the i-th position here of sample j; a rank has complete chunks.
type Leaves struct {
	Batch int64 // samples of the micro-batch
	Chunk int64 // positions of a leaf; 0: sums are not cut
	Long  int64 // the same of weight gradients of column- and row-parallel layers and of the head (--sequence-leaves): a multiple of Chunk
}

// long are the leaves of weight gradients whose rows all ranks of a tensor-parallel group have, also with sequence
// parallelism. They are as long as context parallelism allows, since adding a leaf to a grid takes as long for few
// positions as for many.
func (l Leaves) long() Leaves { return Leaves{Batch: l.Batch, Chunk: l.Long, Long: l.Long} }

// Each calls f with a view for each leaf of tensors of `rows` rows: the leaf's rows of any of
// them, [Chunk, ...].
func (l Leaves) Each(rows int64, f func(of func(device.Tensor) device.Tensor)) {
	for chunk := range rows / l.Batch / l.Chunk {
		for sample := range l.Batch {
			f(func(t device.Tensor) device.Tensor { return t.Leaf(chunk*l.Batch+sample, l.Chunk, l.Batch) })
		}
	}
}

// number sets leaf i32 [rows, 1] to the number of each row's leaf, counted from `first` on.
func (l Leaves) number(d *device.Device, leaf device.Tensor, first int64) {
	numbers := make([]int32, leaf.Len())
	for row := range int64(len(numbers)) {
		numbers[row] = int32(first + row/(l.Chunk*l.Batch)*l.Batch + row%l.Batch)
	}
	device.WriteSlice(d, leaf, numbers)
}

// exact reports whether the gradient of p is a sum on a grid.
func (p *Param) exact() bool { return p.Grid.Given() }

// AddTo calls add to add what `rows` rows contribute to the gradients of params. Usually it gives the gradients
// themselves, and no leaves. If gradients are sums on a grid (--layout-invariant), it gives f32 zeros [leaves, ..] for the sums
// of the leaves, which are then added to the grid.
func (l Leaves) AddTo(d *device.Device, params []*Param, rows int64, add func(grads []device.Tensor, leaves Leaves)) {
	grads := make([]device.Tensor, len(params))
	if !params[0].exact() {
		for i, p := range params {
			grads[i] = p.Grad
		}
		add(grads, Leaves{})
		return
	}
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	for i, p := range params {
		grads[i] = s.Alloc(device.F32, append([]int64{rows / l.Chunk}, p.Shape...)...)
		d.Fill(grads[i], 0)
	}
	add(grads, l)
	for i, p := range params {
		if !p.Frozen {
			d.GridAdd(device.GridAddArgs{Sum: p.Grad, X: grads[i], Grid: p.Grid, Peak: p.Peak})
		}
	}
}

// Share is how many leaves each rank has of an axis that is cut over the region's ranks; 0: no
// leaves.
func (r Region) Share() int32 { return int32(r.Leaves / r.Size()) }

// one is 1 where sums have an order that no shape changes.
func (r Region) one() int32 { return min(1, int32(r.Leaves)) }

// Partial is the dtype of the partial sums that the region's ranks add up: with leaves it is f32,
// so that the complete sum is rounded once.
func (r Region) Partial(value device.DType) device.DType {
	if r.Leaves == 0 || value == device.F64 {
		return value
	}
	return device.F32
}

// AddTree sets the first of t [n, ...] to the sum of all, in a fixed order. With n = m·2^i, m odd,
// each run of m neighbours is added in order, then the 2^i results as a balanced binary tree. So
// ranks that each have a power of two of the parts compute subtrees of the same tree.
func AddTree(d *device.Device, t Tensor) {
	odd := t.Shape[0]
	for odd > 0 && odd%2 == 0 {
		odd /= 2
	}
	for at := range t.Shape[0] {
		if at%odd > 0 {
			d.Add(t.At(at-at%odd), t.At(at-at%odd), t.At(at))
		}
	}
	for step := odd; step < t.Shape[0]; step *= 2 {
		for at := int64(0); at < t.Shape[0]; at += 2 * step {
			d.Add(t.At(at), t.At(at), t.At(at+step))
		}
	}
}

// rounding is a collective whose result is converted to where it is wanted.
type rounding struct {
	comm.Work
	device *device.Device
	to     device.Tensor
	sum    device.Tensor
}

// Wait orders the conversion after the collective.
func (w rounding) Wait() error {
	if err := w.Work.Wait(); err != nil {
		return err
	}
	w.device.Copy(w.to, w.sum)
	return nil
}

// addLeaves starts the sum of the ranks' partial sums as the tree of their leaves into y, the
// rank's rows of it under sequence parallelism.
func (r Region) addLeaves(d *device.Device, y, part device.Tensor) comm.Work {
	if r.Cut() {
		own := r.Own(part)
		return rounding{r.ReduceScatterTree(own, part), d, y, own}
	}
	w := r.AllReduce(part, comm.Tree)
	if part.Data == y.Data {
		return w
	}
	return rounding{w, d, y, part}
}
