package offload

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"monotron/csrc/device"
)

// openDirect opens the file past the page cache; nil: that cannot be.
func openDirect(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	if _, err := f.ReadAt(device.Pages(device.PageSize), 0); err != nil {
		_ = f.Close() // nothing was written
		return nil
	}
	return f
}

// reserve makes the file n bytes long, of zeros for which the disk has reserved space.
func reserve(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return f.Truncate(n)
	}
	return err
}

// forget drops bytes of the file from the page cache, written ones when they are on the disk.
func forget(f *os.File, at, n int64, written bool) error {
	from := at &^ (device.PageSize - 1)
	n = (at+n+device.PageSize-1)&^(device.PageSize-1) - from
	if written {
		const waitAndWrite = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if err := unix.SyncFileRange(int(f.Fd()), from, n, waitAndWrite); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ESPIPE) {
			return err
		}
	}
	_ = unix.Fadvise(int(f.Fd()), from, n, unix.FADV_DONTNEED) // advice
	return nil
}
