package offload

import (
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Host is a device.Store in the host's memory.
type Host struct {
	at unsafe.Pointer
	b  []byte
}

// Memory is the host's memory that one rank took.
type Memory struct{ all []*Host }

// Store takes zeroed memory, whatever it is for.
func (m *Memory) Store(_ string, bytes int64) (device.Store, error) {
	h, err := NewHost(bytes)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--optimizer-cpu-offload: cannot allocate %d bytes of host memory: %w", bytes, err)
	}
	m.all = append(m.all, h)
	return h, nil
}

// Close gives all of it back.
func (m *Memory) Close() {
	for _, h := range m.all {
		h.Close()
	}
	m.all = nil
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
