package comm

import "monotron/csrc/device"

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

// ByHost carries d's tensors by the host: itself where d's memory is the host's, else
// through a copy.
func ByHost(h Host, d *device.Device) Carrier {
	stay := func(error) error { return nil }
	if d.OnHost() {
		return Carrier{Groups: h, End: stay}
	}
	return Carrier{Groups: Staged{h}, Note: "tensors pass between ranks through the host's memory", End: stay}
}
