package device

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// limited is host memory of which there is only so much.
type limited struct {
	HostBackend
	left int64
}

func (*limited) Describe() string             { return "limited" }
func (*limited) Run(Op, unsafe.Pointer) error { return nil }
func (l *limited) Alloc(bytes int64) (unsafe.Pointer, error) {
	if l.left -= bytes; l.left < 0 {
		return nil, errors.New("that was all")
	}
	return l.HostBackend.Alloc(bytes)
}

// TestOutOfMemoryNamesTheLargest: five kinds of tensors, those that were freed
// not among them.
func TestOutOfMemoryNamesTheLargest(t *testing.T) {
	d := New("limited", &limited{left: segmentSize})
	defer d.Close()
	for range 3 {
		d.Arena.Alloc(Activations, BF16, 1<<20)
	}
	d.Arena.Alloc(Optimizer, F32, 1<<20)
	d.Arena.Free(d.Arena.Alloc(Workspace, F32, 3<<20))
	for n := range int64(5) {
		d.Arena.Alloc(Parameters, F32, 1000*(n+1), 8)
	}
	defer func() {
		e, ok := recover().(*OutOfMemory)
		if !ok {
			t.Fatal("an allocation past the end of memory succeeded")
		}
		want := "out of device memory: 128.0 MiB for activations (bf16 64x1048576) with 10.5 MiB allocated: that was all; " +
			"the largest: 6.0 MiB activations: 3 of bf16 1048576, 4.0 MiB optimizer: 1 of f32 1048576, 160000 bytes parameters: 1 of f32 5000x8, "
		if got := e.Error(); !strings.HasPrefix(got, want) || len(e.Largest) != 5 {
			t.Errorf("%s\nwant %s", got, want)
		}
	}()
	d.Arena.Alloc(Activations, BF16, 64, 1<<20)
}
