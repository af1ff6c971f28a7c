package offload

import (
	"unsafe"

	"monotron/csrc/device"
)

// Host is a device.Store in the host's memory.
type Host struct {
	at unsafe.Pointer
	b  []byte
}

// NewHost takes zeroed memory.
func NewHost(bytes int64) (*Host, error) {
	p, err := device.HostAlloc(bytes)
	if err != nil {
		return nil, err
	}
	return &Host{p, unsafe.Slice((*byte)(p), bytes)}, nil
}

func (h *Host) ReadAt(dst []byte, at int64) error {
	copy(dst, h.b[at:])
	return nil
}

func (h *Host) WriteAt(src []byte, at int64) error {
	copy(h.b[at:], src)
	return nil
}

// Close gives the memory back.
func (h *Host) Close() { device.HostFree(h.at, int64(len(h.b))) }
