//go:build !cgo || !linux

package gpu

import "monotron/fault"

func openNCCL() (opener, string, error) {
	return nil, "", fault.Errorf(fault.Usage, "NCCL cannot be used: this program was built without cgo")
}
