//go:build !unix

package training

import (
	"os"
)

// lock does nothing where files cannot be locked.
func lock(*os.File) (held bool, err error) { return false, nil }
