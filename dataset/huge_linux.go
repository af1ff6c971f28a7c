package dataset

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// askHuge asks the kernel for large pages under data: a shuffle visits it at
// random, and with small pages every visit looks up its page first. It is a wish;
// nothing depends on it.
func askHuge(data []byte) {
	const page = 2 << 20
	if len(data) < 2*page {
		return
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(data))) % page
	data = data[skip:]
	_ = unix.Madvise(data[:len(data)/page*page], unix.MADV_HUGEPAGE)
}
