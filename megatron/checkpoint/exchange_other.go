//go:build !linux

package checkpoint

import "errors"

// exchange is for Linux.
func exchange(string, string) error { return errors.ErrUnsupported }
