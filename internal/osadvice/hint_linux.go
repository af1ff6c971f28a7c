package osadvice

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugePages asks for large pages under those of data that are complete: filling small
// ones for the first time takes longer than a copy, and data that is visited at
// random access finds its page first each time.
func HugePages(data []byte) {
	const page = 2 << 20
	if len(data) < 2*page {
		return
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(data))) % page
	data = data[skip:]
	_ = unix.Madvise(data[:len(data)/page*page], unix.MADV_HUGEPAGE)
}

// WriteBack begins to write n bytes at at of a file to the disk. A failure is reported
// by Sync.
func WriteBack(f *os.File, at, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), at, n, unix.SYNC_FILE_RANGE_WRITE)
}

// Reserve takes n bytes of the disk for a file's bytes at at, so that writers at
// several positions need not wait for each other to make it longer. A lack of space
// is reported by the writes.
func Reserve(f *os.File, at, n int64) { _ = unix.Fallocate(int(f.Fd()), 0, at, n) }

// WillNeed begins to read n bytes at at of a file into memory.
func WillNeed(f *os.File, at, n int64) { _ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_WILLNEED) }

// Random turns off the system's own guesses about what of a file is read next.
func Random(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }

// Forget drops the cached pages of a file that are on disk.
func Forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
