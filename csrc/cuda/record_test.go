//go:build cgo

package cuda_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"unsafe"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// recorder writes every call with the memory it touches, for emu/replay.cpp, and
// lets the emulated library run it.
type recorder struct {
	device.Backend
	out  *bufio.Writer
	used []device.Tensor // what the arena was given, as bytes
	err  error
}

func (r *recorder) Alloc(bytes int64) (unsafe.Pointer, error) {
	p, err := r.Backend.Alloc(bytes)
	if err == nil {
		r.used = append(r.used, device.View(p, device.U16, bytes/2))
	}
	return p, err
}

// pointer is a tensor in an argument struct: where, and the bytes it spans.
type pointer struct{ offset, from, to uintptr }

func (r *recorder) Run(op device.Op, args unsafe.Pointer) error {
	raw := unsafe.Slice((*byte)(args), op.ArgBytes())
	var tensors []pointer
	for at := uintptr(0); at+unsafe.Sizeof(device.Tensor{}) <= uintptr(len(raw)); at += 8 {
		if t := (*device.Tensor)(unsafe.Add(args, at)); r.holds(t.Data) {
			tensors = append(tensors, pointer{at, uintptr(t.Data), uintptr(t.Data) + span(*t)})
		}
	}
	r.write(op, raw, tensors)
	return r.Backend.Run(op, args)
}

func (r *recorder) holds(p unsafe.Pointer) bool {
	return slices.ContainsFunc(r.used, func(t device.Tensor) bool {
		return uintptr(p) >= uintptr(t.Data) && uintptr(p) < uintptr(t.Data)+uintptr(t.Bytes())
	})
}

// span is the bytes from a tensor's first to behind its last element.
func span(t device.Tensor) uintptr {
	if t.Len() == 0 {
		return 0
	}
	elements := int64(1)
	for i := range t.Dims() {
		elements += (t.Shape[i] - 1) * t.Stride[i]
	}
	return uintptr(elements * t.DType.Size())
}

// write puts overlapping tensors into one block: they are views of one buffer.
func (r *recorder) write(op device.Op, raw []byte, tensors []pointer) {
	sorted := slices.SortedFunc(slices.Values(tensors), func(a, b pointer) int { return int(a.from) - int(b.from) })
	var blocks []pointer
	for _, t := range sorted {
		if n := len(blocks); n > 0 && t.from < blocks[n-1].to {
			blocks[n-1].to = max(blocks[n-1].to, t.to)
		} else {
			blocks = append(blocks, t)
		}
	}
	r.put(int32(op), int32(len(raw)), raw, int32(len(blocks)))
	for _, b := range blocks {
		content := make([]byte, b.to-b.from)
		if err := r.Read(content, r.at(b.from)); err != nil && r.err == nil {
			r.err = err
		}
		r.put(int64(len(content)), content)
	}
	r.put(int32(len(tensors)))
	for _, t := range tensors {
		block := slices.IndexFunc(blocks, func(b pointer) bool { return t.from >= b.from && t.to <= b.to })
		r.put(int32(t.offset), int32(block), int64(t.from-blocks[block].from))
	}
}

// at is the pointer to an address inside a used tensor.
func (r *recorder) at(address uintptr) unsafe.Pointer {
	for _, t := range r.used {
		if by := address - uintptr(t.Data); address >= uintptr(t.Data) && by < uintptr(t.Bytes()) {
			return unsafe.Add(t.Data, by)
		}
	}
	panic("an address that is not held")
}

func (r *recorder) put(values ...any) {
	for _, v := range values {
		if err := binary.Write(r.out, binary.LittleEndian, v); err != nil && r.err == nil {
			r.err = err
		}
	}
}

// TestRecord writes the calls of the cases that -run names to the file that
// MONOTRON_RECORD names: make test-emu-race replays them under checkers.
func TestRecord(t *testing.T) {
	path := os.Getenv("MONOTRON_RECORD")
	if path == "" {
		t.Skip("MONOTRON_RECORD names no file; make test-emu-race sets it")
	}
	emulated(t)
	b, err := device.OpenLibrary(os.Getenv(cuda.LibraryVariable), 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Backend: b, out: bufio.NewWriter(file)}
	devicetest.Values(t, device.New("cuda", r))
	if err := r.finish(file); err != nil {
		t.Fatal(err)
	}
}

func (r *recorder) finish(file io.Closer) error {
	if r.err != nil {
		return fmt.Errorf("recording: %w", r.err)
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	return file.Close()
}
