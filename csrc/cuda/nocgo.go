//go:build !cgo

package cuda

import (
	"errors"

	"monotron/csrc/device"
)

// LibraryVariable names the kernel library's file, in a build that can open it.
const LibraryVariable = "MONOTRON_CUDA_LIBRARY"

// Open says that this build cannot open a library.
func Open(int) (*device.Device, error) {
	return nil, errors.New("CUDA cannot be used: this program was built without cgo and cannot open a kernel library; use --device ref")
}

// Wanted is false: no library can be opened.
func Wanted() bool { return false }
