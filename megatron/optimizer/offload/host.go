package offload

import (
	"strings"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/nf4"
)

// Host is a device.Store in the host's memory.
type Host struct {
	at unsafe.Pointer
	b  []byte
}

// Memory is the host's memory that one rank took.
type Memory struct {
	all    []*Host
	packed []*nf4.Packed
}

// Store takes zeroed memory, whatever it is for.
func (m *Memory) Store(_ string, bytes int64) (device.Store, error) {
	h, err := NewHost(bytes)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "cannot allocate %d bytes of host memory: %w", bytes, err)
	}
	m.all = append(m.all, h)
	return h, nil
}

// Packed is Store of values of dtype, which it keeps in 4 bits where they are NF4's (nf4.Packed).
func (m *Memory) Packed(dtype device.DType) func(purpose string, bytes int64) (device.Store, error) {
	return func(purpose string, bytes int64) (device.Store, error) {
		p, err := nf4.NewPacked(strings.ToUpper(dtype.String()), bytes/dtype.Size(), func(bytes int64) ([]byte, error) {
			h, err := m.Store(purpose, max(1, bytes))
			if err != nil {
				return nil, err
			}
			return h.(*Host).b, nil
		})
		m.packed = append(m.packed, p)
		return p, err
	}
}

// PackedSize is what values of dtype that take so many bytes take from Packed if all of them are NF4's.
func PackedSize(dtype device.DType, bytes int64) int64 {
	return nf4.PackedSize(strings.ToUpper(dtype.String()), bytes/dtype.Size())
}

// PackedBytes is what values that Packed keeps take.
func (m *Memory) PackedBytes() (bytes int64) {
	for _, p := range m.packed {
		bytes += p.Bytes()
	}
	return bytes
}

// Close gives all of it back.
func (m *Memory) Close() {
	for _, h := range m.all {
		h.Close()
	}
	m.all, m.packed = nil, nil
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
