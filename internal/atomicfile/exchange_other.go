//go:build !linux

package atomicfile

import "errors"

// exchange is for Linux.
func exchange(string, string) error { return errors.ErrUnsupported }
