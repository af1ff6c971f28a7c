package telemetry

import "golang.org/x/sys/unix"

// FreeBytes are those that a disk has for who asks; not ok: nobody knows.
func FreeBytes(folder string) (bytes int64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
