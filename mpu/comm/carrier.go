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
	Note func() string            // what the log should say of the groups so far; "" where nothing is remarkable
	End  func(failed error) error // after the last collective, or why there is none
}

// ByHost carries d's tensors by the host: itself where d's memory is the host's, else
// through a copy.
func ByHost(h Host, d *device.Device) Carrier {
	stay := func(error) error { return nil }
	if d.OnHost() {
		return Carrier{Groups: h, Note: Says(""), End: stay}
	}
	return Carrier{Groups: Staged{h}, Note: Says("tensors pass between ranks through the host's memory"), End: stay}
}

// Says is a Note that stays as it is.
func Says(note string) func() string { return func() string { return note } }
