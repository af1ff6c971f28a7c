package dataset

import (
	"os"

	"golang.org/x/sys/unix"
)

// sendAhead begins to write n bytes at at of a file to the disk, and does not wait.
func sendAhead(f *os.File, at, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), at, n, unix.SYNC_FILE_RANGE_WRITE) // a wish: Sync says what failed
}
