package system

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// MapMemory maps zeroed memory outside Go's heap.
func MapMemory(bytes int64) (unsafe.Pointer, error) {
	address, err := windows.VirtualAlloc(0, uintptr(bytes), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, err
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&address)), nil // outside the heap: the collector never moves it
}

// UnmapMemory returns memory of MapMemory; bytes is the size that was mapped.
func UnmapMemory(p unsafe.Pointer, _ int64) {
	_ = windows.VirtualFree(uintptr(p), 0, windows.MEM_RELEASE) // fails only for memory that was not mapped
}
