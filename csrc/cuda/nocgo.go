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
	return nil, errors.New("no CUDA here: this program was built without cgo and opens no kernel library; --device ref works")
}

// Wanted is false: no library can be opened.
func Wanted() bool { return false }
