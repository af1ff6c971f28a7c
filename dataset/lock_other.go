//go:build !unix

package dataset

import "os"

// lockFile: this system has no such lock; two runs with one prefix are the user's care.
func lockFile(*os.File) error { return nil }
