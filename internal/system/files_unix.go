//go:build unix

package system

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// NoFollow has os.OpenFile fail at a symbolic link, with syscall.ELOOP.
const NoFollow = syscall.O_NOFOLLOW

// DiskSpace returns the bytes of the file system that path lies on, and those that
// this user may still write. Total 0: the file system does not report its size.
func DiskSpace(path string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil
}

// Links is the number of names that a file has; 1 where it is not known.
func Links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
