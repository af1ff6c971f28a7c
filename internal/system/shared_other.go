//go:build !linux

package system

import (
	"errors"
	"fmt"
	"os"
)

// SharedMemory is a file of memory without a name; this system has none.
func SharedMemory(string) (*os.File, error) {
	return nil, fmt.Errorf("memory that outlives a process: %w", errors.ErrUnsupported)
}

// MapShared maps a file of SharedMemory; this system has none.
func MapShared(*os.File, int64) ([]byte, error) {
	return nil, fmt.Errorf("memory that outlives a process: %w", errors.ErrUnsupported)
}

// UnmapShared ends a mapping of MapShared.
func UnmapShared([]byte) {}

// Inherited is the file that another process has handed on under a number.
func Inherited(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }
