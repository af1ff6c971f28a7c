package preflight

import "golang.org/x/sys/unix"

// sharedSpace is what /dev/shm has left, in bytes; -1: not known.
func sharedSpace() int64 {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * s.Bsize
}
