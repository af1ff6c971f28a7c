//go:build unix

package system

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapMemory maps zeroed memory outside Go's heap.
func MapMemory(bytes int64) (unsafe.Pointer, error) {
	return unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// UnmapMemory returns memory of MapMemory; bytes is the size that was mapped.
func UnmapMemory(p unsafe.Pointer, bytes int64) {
	_ = unix.MunmapPtr(p, uintptr(bytes)) // fails only for memory that was not mapped
}
