package training

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/watch"
)

// world is what gives ranks their groups: comm.World, whose ranks are goroutines,
// or comm.Process, whose ranks are processes.
type world interface {
	Group(rank int, name string, members []int, d *device.Device) (comm.Group, error)
}

// at says what the rank is doing, for whoever has to say why it does no more.
func (r *Rank) at(p watch.Phase, step int64) {
	if r.tell != nil {
		r.tell(watch.At(p, step))
	}
	r.watch.Enter(p, step)
}
