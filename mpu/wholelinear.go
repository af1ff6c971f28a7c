package mpu

import "monotron/csrc/device"

// ReplicatedLinear is y = x·Wᵀ with all of W [out, in] on every rank of the region, applied to
// the rows that a rank holds outside the cut layers. Its gradient is a partial sum under
// sequence parallelism, else the same on all.
type ReplicatedLinear struct{ Weight *Param }

// NewReplicatedLinear makes the layer; it has no bias.
func NewReplicatedLinear(r Region, c LinearConfig) *ReplicatedLinear {
	l := &ReplicatedLinear{Weight: Whole(c.Name+".weight", c.Init, c.Out, c.In)}
	l.Weight.Outside(r)
	return l
}

// Params lists the weight.
func (l *ReplicatedLinear) Params() []*Param { return []*Param{l.Weight} }

// Forward: x [rows, in] -> y [rows, out]. r gives the rule by which rows are made.
func (l *ReplicatedLinear) Forward(d *device.Device, r Region, y, x device.Tensor) {
	d.Matmul(device.MatmulArgs{C: y, A: x, B: l.Weight.Value, TransB: 1, ByRow: r.byRow()})
}

// Backward: dx = dy·W; the gradient of the weight +=.
func (l *ReplicatedLinear) Backward(d *device.Device, dx, dy, x device.Tensor) {
	d.Matmul(device.MatmulArgs{C: dx, A: dy, B: l.Weight.Value})
	weightGradient(d, l.Weight, dy, x)
}

// Enter joins the rows of x [rows, n] that the ranks of the region hold outside to all rows, in
// scope s: x itself without sequence parallelism.
func Enter(r Region, s *device.Scope, x device.Tensor) (device.Tensor, error) {
	whole, work := entering(r, s, x)
	return whole, wait(work)
}

// LeavePartial sets y, the rank's rows outside, to the sum over ranks of part, which each has
// of all rows: the backward of Enter, where each rank used all of it.
func LeavePartial(r Region, d *device.Device, y, part device.Tensor) error {
	if !r.Cut() {
		d.Copy(y, part)
		part = y
	}
	return wait(leave(r, y, part))
}
