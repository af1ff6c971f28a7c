//go:build !cgo || !linux

package comm

import (
	"time"

	"monotron/csrc/device"
	"monotron/fault"
)

func overNCCL(Host, *device.Device, time.Duration) (Carrier, error) {
	return Carrier{}, fault.Errorf(fault.Usage, "NCCL cannot be used: this program was built without cgo")
}
