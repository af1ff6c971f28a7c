//go:build unix

package dataset

import (
	"os"
	"syscall"
)

// lockFile fails where another process has the file locked; the lock goes with
// the process.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
