package system

import (
	"os"

	"golang.org/x/sys/unix"
)

// SharedMemory is an empty file of memory without a name, for processes that it is handed on to.
// The kernel frees it when the last of them has ended. It is not bounded by /dev/shm.
func SharedMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// MapShared maps the first n bytes of a file of SharedMemory, which is made longer where it is
// shorter. The memory is there when it returns: without it the error says so.
func MapShared(f *os.File, n int64) ([]byte, error) {
	fd := int(f.Fd())
	if err := unix.Fallocate(fd, 0, 0, n); err != nil {
		return nil, os.NewSyscallError("fallocate", err)
	}
	b, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

// UnmapShared ends a mapping of MapShared.
func UnmapShared(b []byte) {
	_ = unix.Munmap(b) // fails only for memory that was not mapped
}

// Inherited is the file that the process which started this one has handed on under a number.
// Processes that this one starts do not get it.
func Inherited(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}
