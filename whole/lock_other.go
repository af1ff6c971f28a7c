//go:build !unix

package whole

import "os"

// Lock does nothing where files cannot be locked.
func Lock(*os.File) (held bool, err error) { return false, nil }
