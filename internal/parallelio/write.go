package parallelio

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"monotron/internal/osadvice"
)

const (
	chunkBytes = 8 << 20  // of one transfer, where bytes are copied
	alignment  = 4096     // of memory, offset and length, for transfers past the page cache
	aheadBytes = 64 << 20 // by which a growing file's blocks are reserved
	writers    = 3        // transfers under way
)

// File is a file being written from its start to its end. A small one is written
// at once, by Sync. It belongs to one goroutine.
type File struct {
	file     *os.File
	chunk    []byte // being filled
	at       int64  // where it goes
	reserved int64

	idle chan []byte // chunks to fill, some without memory yet; nil: nothing is under way
	work chan write
	done sync.WaitGroup

	mu     sync.Mutex
	err    error // of a transfer
	direct bool
}

type write struct {
	bytes []byte
	at    int64
	back  func() // when they are written, or will not be
}

// NewFile writes to f, which is new and empty, and closes it in Close.
func NewFile(f *os.File) *File { return &File{file: f} }

// Fill puts what fill writes into f, which is new and empty. To sync and close it is
// the caller's.
func Fill(f *os.File, fill func(*File) error) error {
	file := NewFile(f)
	defer file.stop()
	if err := fill(file); err != nil {
		return err
	}
	return file.flush()
}

// Write appends b. Trouble with bytes of an earlier call may show only now, or in Sync.
func (f *File) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		if len(f.chunk) == chunkBytes {
			if err := f.send(); err != nil {
				return n, err
			}
		}
		f.grow(len(b) - n)
		k := min(len(b)-n, cap(f.chunk)-len(f.chunk))
		f.chunk = append(f.chunk, b[n:n+k]...)
		n += k
	}
	return len(b), nil
}

// Space is memory for the next bytes, some of n, for who can make them in place;
// Commit then appends what was put there.
func (f *File) Space(n int) ([]byte, error) {
	if len(f.chunk) == chunkBytes {
		if err := f.send(); err != nil {
			return nil, err
		}
	}
	f.grow(n)
	return f.chunk[len(f.chunk):min(len(f.chunk)+n, cap(f.chunk))], nil
}

// Commit appends the first n bytes of the Space asked for last.
func (f *File) Commit(n int) { f.chunk = f.chunk[:len(f.chunk)+n] }

// Take appends b and keeps it until it is written, when b lies in a page of memory
// as it will in a page of the file and is worth it; else it is copied. Only what
// shares pages of the file with neighbours goes through a chunk then.
func (f *File) Take(b []byte, back func()) error {
	const worth = 256 << 10
	head := int(-(f.at + int64(len(f.chunk))) & (alignment - 1))
	if len(b) < worth || uintptr(unsafe.Pointer(&b[head]))&(alignment-1) != 0 {
		defer back()
		_, err := f.Write(b)
		return err
	}
	if _, err := f.Write(b[:head]); err != nil {
		back()
		return err
	}
	body := b[head : len(b)-(len(b)-head)%alignment]
	var tail [alignment]byte // a copy: who calls back may fill b again
	rest := copy(tail[:], b[head+len(body):])
	if len(f.chunk) > 0 {
		if err := f.send(); err != nil {
			back()
			return err
		}
	}
	f.hand(body, back)
	if _, err := f.Write(tail[:rest]); err != nil {
		return err
	}
	return f.failed()
}

// grow makes space for n more bytes, or as many as a chunk takes. A file that fits
// none gets no more memory than it needs.
func (f *File) grow(n int) {
	if cap(f.chunk)-len(f.chunk) >= min(n, chunkBytes-len(f.chunk)) {
		return
	}
	size := chunkBytes
	if want := 2 * (len(f.chunk) + n); want < chunkBytes {
		size = want
	}
	f.chunk = append(aligned(size)[:0], f.chunk...)
}

// aligned is memory that a transfer past the page cache may start at.
func aligned(size int) []byte {
	b := make([]byte, size+alignment)
	shift := int(-uintptr(unsafe.Pointer(&b[0])) & (alignment - 1))
	return b[shift : shift+size : shift+size]
}

// send hands the chunk over, complete pages, and takes one to fill.
func (f *File) send() error {
	chunk := f.chunk
	f.hand(chunk, func() { f.idle <- chunk })
	f.chunk = (<-f.idle)[:0]
	return f.failed()
}

// hand gives complete pages to a transfer.
func (f *File) hand(pages []byte, back func()) {
	if f.idle == nil {
		f.start()
	}
	f.ahead(int64(len(pages)))
	f.work <- write{pages, f.at, back}
	f.at += int64(len(pages))
}

func (f *File) start() {
	f.idle, f.work = make(chan []byte, writers+1), make(chan write)
	f.direct = f.setDirect(true) == nil
	for range writers {
		f.idle <- nil
		f.done.Go(f.transfer)
	}
}

// ahead reserves blocks that the next n bytes need, so that transfers need not wait
// for each other to make the file longer. Without space or such a call,
// the transfer itself reports it.
func (f *File) ahead(n int64) {
	if f.at+n > f.reserved {
		more := max(n, aheadBytes)
		osadvice.Reserve(f.file, f.reserved, more)
		f.reserved += more
	}
}

func (f *File) transfer() {
	for w := range f.work {
		if f.failed() == nil {
			f.fail(f.write(w))
		}
		w.back()
	}
}

func (f *File) write(w write) error {
	_, err := f.file.WriteAt(w.bytes, w.at)
	if errors.Is(err, syscall.EINVAL) && f.isDirect() { // a device with other wishes
		if err = f.setDirect(false); err == nil {
			_, err = f.file.WriteAt(w.bytes, w.at)
		}
	}
	if err == nil && !f.isDirect() {
		osadvice.WriteBack(f.file, w.at, int64(len(w.bytes))) // a head start; Sync waits and reports errors
	}
	return err
}

func (f *File) isDirect() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.direct
}

// setDirect turns transfers past the page cache on or off.
func (f *File) setDirect(on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := pastCache(f.file, on)
	if err == nil {
		f.direct = on
	}
	return err
}

func (f *File) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *File) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// stop waits for the transfers under way.
func (f *File) stop() {
	if f.work != nil {
		close(f.work)
		f.done.Wait()
		f.work = nil
	}
}

// Sync writes what is left; when it returns nil the complete file is on disk. Nothing
// may be written after it.
func (f *File) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Sync()
}

// flush hands what is left to the system.
func (f *File) flush() error {
	f.stop()
	if err := f.failed(); err != nil {
		return err
	}
	if f.isDirect() {
		if err := f.setDirect(false); err != nil { // the rest is not a multiple of the block
			return err
		}
	}
	if _, err := f.file.WriteAt(f.chunk, f.at); err != nil {
		return err
	}
	if f.reserved > 0 {
		if err := f.file.Truncate(f.at + int64(len(f.chunk))); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file, finished or not.
func (f *File) Close() error {
	f.stop()
	return f.file.Close()
}
