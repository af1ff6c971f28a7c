package device

import (
	"unsafe"

	"monotron/internal/osadvice"
	"monotron/internal/system"
)

// HostAlloc maps zeroed memory outside Go's heap, so that C may hold pointers
// to it; large pages where the system grants them.
func HostAlloc(bytes int64) (unsafe.Pointer, error) {
	p, err := system.MapMemory(bytes)
	if err != nil {
		return nil, err
	}
	osadvice.HugePages(unsafe.Slice((*byte)(p), bytes))
	return p, nil
}

// HostFree unmaps what HostAlloc gave.
func HostFree(p unsafe.Pointer, bytes int64) { system.UnmapMemory(p, bytes) }

// HostBackend is the memory half of a Backend whose device memory is the host's.
type HostBackend struct{}

func (HostBackend) Alloc(bytes int64) (unsafe.Pointer, error) { return HostAlloc(bytes) }
func (HostBackend) Free(p unsafe.Pointer, bytes int64)        { HostFree(p, bytes) }
func (HostBackend) Sync() error                               { return nil }
func (HostBackend) OnHost() bool                              { return true }
func (HostBackend) Close()                                    {}

func (HostBackend) Write(dst unsafe.Pointer, src []byte) error {
	copy(unsafe.Slice((*byte)(dst), len(src)), src)
	return nil
}

func (HostBackend) Read(dst []byte, src unsafe.Pointer) error {
	copy(dst, unsafe.Slice((*byte)(src), len(dst)))
	return nil
}
