package preprocess

import "golang.org/x/sys/unix"

// reserve gives n bytes that take memory where they are written; from the heap
// where the system does not let so much be reserved.
func reserve(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return make([]byte, 4*blockBytes)
	}
	return b
}

// release undoes reserve.
func release(b []byte) { _ = unix.Munmap(b) } // what came from the heap is not a mapping, and stays

// giveBack gives up the memory of a reserved buffer between keep and used.
func giveBack(b []byte, keep, used int) {
	const page = 4096
	if used = min((used+page-1)&^(page-1), cap(b)); keep < used {
		_ = unix.Madvise(b[keep:used:used], unix.MADV_DONTNEED)
	}
}
