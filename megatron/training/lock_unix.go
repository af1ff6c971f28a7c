//go:build unix

package training

import (
	"errors"
	"os"
	"syscall"
)

// lock takes f for this process alone; held: another has it.
func lock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
