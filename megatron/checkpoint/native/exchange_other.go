//go:build !linux

package native

import "errors"

// exchange is for Linux.
func exchange(string, string) error { return errors.ErrUnsupported }
