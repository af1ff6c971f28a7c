//go:build unix

package health

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile makes a private file of n bytes and maps it: what is written there stays
// when the process is killed.
func mapFile(path string, n int) (memory []byte, unmap func() error, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()                                     // the mapping stays
	if _, err := f.Write(make([]byte, n)); err != nil { // not a hole: a full disk is told now
		return nil, nil, err
	}
	memory, err = unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return memory, func() error { return unix.Munmap(memory) }, nil
}
