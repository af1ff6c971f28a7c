package comm

import (
	"time"

	"monotron/csrc/device"
)

// Host is how ranks reach each other without their GPUs: a World or a Process.
type Host interface {
	Groups
	Abort(err error)
	Err() error
}

// Carrier is how the tensors of a rank's device travel.
type Carrier struct {
	Groups
	Note string                   // what the log should say; "" where nothing is remarkable
	End  func(failed error) error // after the last collective, or why there is none
}

// Carry chooses for d: the host itself where d's memory is the host's, NCCL where
// each rank has a GPU of its own and wants it, else through the host's memory.
func Carry(h Host, d *device.Device, useNCCL bool, limit time.Duration) Carrier {
	stay := func(error) error { return nil }
	if d.OnHost() {
		return Carrier{Groups: h, End: stay}
	}
	through := Carrier{Groups: Staged{h}, Note: "tensors pass between ranks through the host's memory", End: stay}
	if !useNCCL || d.Streams() == nil {
		return through
	}
	c, err := overNCCL(h, d, limit)
	if err != nil {
		through.Note = err.Error() + "; " + through.Note
		return through
	}
	return c
}
