package training

import (
	"monotron/mpu/comm/watch"
)

// at says what the rank is doing, for whoever has to say why it does no more.
func (r *Rank) at(p watch.Phase, step int64) {
	if r.tell != nil {
		r.tell(watch.At(p, step))
	}
	r.watch.Enter(p, step)
}
