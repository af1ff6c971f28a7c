//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// Lock takes an open file or folder for this process alone, until it is closed or the
// process ends however it may; not locked: another has it. The error is of a file system that
// knows no locks, or fails otherwise.
func Lock(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
