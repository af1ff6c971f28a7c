package ranks

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/topology"
)

// Imagine makes one rank of c's without the others, for a plan: on a device that counts,
// in groups that move nothing.
func Imagine(c Config, number int, d *device.Device, over comm.Imagined) (*Rank, error) {
	if c.Sizes.World() == 1 {
		return alone(c.Sizes, d), nil
	}
	r := &Rank{Number: number, Sizes: c.Sizes, Coordinates: c.Sizes.At(number), Device: d, Groups: map[topology.Kind]*comm.Group{}, carrier: over}
	if err := r.Join(append([]topology.Kind{topology.All}, c.Kinds...)...); err != nil {
		return nil, err
	}
	return r, r.joinSaves(over)
}
