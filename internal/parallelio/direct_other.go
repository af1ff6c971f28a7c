//go:build !linux

package parallelio

import (
	"errors"
	"os"
)

// pastCache is for Linux.
func pastCache(*os.File, bool) error { return errors.ErrUnsupported }
