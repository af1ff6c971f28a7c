//go:build !cgo

package cpu

import (
	"errors"

	"monotron/csrc/device"
)

// Open says that this build has no C kernels.
func Open() (*device.Device, error) {
	return nil, errors.New("this program was built without cgo and has no C kernels; use --device ref, or build with CGO_ENABLED=1 and a C compiler")
}

// Describe says why there is nothing to describe.
func Describe() string { return "no C kernels: built without cgo" }
