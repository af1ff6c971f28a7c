//go:build !unix

package atomicfile

import "os"

// Lock does nothing where files cannot be locked.
func Lock(*os.File) (locked bool, err error) { return false, nil }
