package health

import (
	"errors"
	"os"

	"github.com/edsrzf/mmap-go"
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
	if _, err := f.Write(make([]byte, n)); err != nil { // not a hole: a full disk is reported now
		return nil, nil, err
	}
	mapped, err := mmap.MapRegion(f, n, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	return mapped, func() error { return mapped.Unmap() }, nil
}
