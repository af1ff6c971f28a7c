package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// The mappings between replicated and tensor-parallel tensors come in pairs:
// what is the identity forward is a reduction backward, and the other way
// round (Shoeybi et al., arXiv 1909.08053, section 3: f and g).

// CopyToRegionBackward: every rank used the same input, so its gradient is the
// sum of theirs. The forward is the identity.
func CopyToRegionBackward(tp comm.Group, dx device.Tensor) error { return reduce(tp, dx) }

// ReduceFromRegionForward: every rank holds a partial sum of y. The backward is
// the identity.
func ReduceFromRegionForward(tp comm.Group, y device.Tensor) error { return reduce(tp, y) }

func reduce(tp comm.Group, t device.Tensor) error {
	if tp.Size() == 1 {
		return nil
	}
	return tp.AllReduce(t, comm.Sum).Wait()
}
