//go:build cgo

package cpu

/*
#cgo CFLAGS: -O3 -g0 -std=c11 -D_GNU_SOURCE -Wall -Wno-psabi
#cgo LDFLAGS: -lm -ldl
#include "cpu.h"
const mt_device_api *mt_cpu_api(void);
*/
import "C"

import (
	"unsafe"

	"monotron/csrc/device"
)

// Open makes a device for one rank. Ranks share the process's pool.
func Open() (*device.Device, error) {
	if err := checkSettings(); err != nil {
		return nil, err
	}
	b, err := device.OpenHostTable(unsafe.Pointer(C.mt_cpu_api()), device.SharedPool())
	if err != nil {
		return nil, err
	}
	d := device.New("cpu", b)
	d.Common = commonISA
	return d, nil
}
