package cgroup

import "syscall"

// Files is one part in `parts` of the files that this process may have open, at least 1 and at
// most `most`: so many connections of others it can take, and still open its own files.
func Files(parts uint64, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(max(1, min(uint64(most), limit.Cur/parts)))
}
