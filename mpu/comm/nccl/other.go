//go:build !cgo || !linux

package nccl

import "monotron/internal/exitcode"

func openNCCL() (opener, string, error) {
	return nil, "", exitcode.Errorf(exitcode.Usage, "NCCL cannot be used: this program was built without cgo")
}
