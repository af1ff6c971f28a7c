//go:build cgo

package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// emulated skips where the named library is not the emulated one.
func emulated(t *testing.T) {
	t.Helper()
	if !strings.Contains(os.Getenv(cuda.LibraryVariable), "cudaemu") {
		t.Skipf("%s does not name the emulated library; make test-emu sets it", cuda.LibraryVariable)
	}
}

// Claim: results have the same bits whatever the order of threads, warps and
// blocks, and whether asynchronous copies land early or late. A kernel that misses a
// barrier or a wait fails here.
func TestOrderOfThreads(t *testing.T) {
	emulated(t)
	if testing.Short() {
		t.Skip("three times the case table: not with -short")
	}
	orders := []string{"forward,greedy,late", "reverse,greedy,early", "random,fair,late"}
	devicetest.SameBits(t, func(pool *device.Pool) *device.Device { return openIn(t, orders[pool.Threads()-1]) })
}

// openIn opens a copy of the library: each copy reads its settings once.
func openIn(t *testing.T, order string) *device.Device {
	t.Helper()
	t.Setenv("MONOTRON_EMU", order)
	return openCopy(t)
}

func openCopy(t *testing.T) *device.Device {
	t.Helper()
	raw, err := os.ReadFile(os.Getenv(cuda.LibraryVariable))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libmt_cudaemu.so")
	if err := os.WriteFile(path, raw, 0o777); err != nil {
		t.Fatal(err)
	}
	b, err := device.OpenLibrary(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return device.New("cuda", b)
}

// Claim: memory that the device lacks ends in OutOfMemory with the numbers, and the
// device continues.
func TestOutOfMemory(t *testing.T) {
	emulated(t)
	d := open(t)
	defer d.Close()
	t.Setenv("MONOTRON_EMU_MEMORY", "1048576")
	func() {
		defer func() {
			e, ok := recover().(error)
			var oom *device.OutOfMemory
			if !ok || !errors.As(e, &oom) || !strings.Contains(e.Error(), "1048576 bytes free") {
				t.Errorf("%v", e)
			}
		}()
		d.Arena.Alloc(device.Activations, device.F32, 1<<20)
	}()
	t.Setenv("MONOTRON_EMU_MEMORY", "1073741824")
	x := d.Arena.Alloc(device.Activations, device.F32, 4)
	d.Fill(x, 2)
	if got := device.ReadSlice[float32](d, x); d.Sync() != nil || got[3] != 2 {
		t.Errorf("afterwards: %v, %v", got, d.Err())
	}
}

// Claim: an op that lacks workspace fails as any lack of memory does, and the device
// continues.
func TestOutOfMemoryOfAnOp(t *testing.T) {
	emulated(t)
	d := openCopy(t)
	defer d.Close()
	x := d.Arena.Zeroed(device.Activations, device.F32, 1<<16, 8)
	sums := d.Arena.Zeroed(device.MainGradients, device.F32, 8)
	t.Setenv("MONOTRON_EMU_MEMORY", "67108864") // what the tensors lie in
	lack := func() (err error) {
		defer device.CatchOutOfMemory(&err)
		d.ColumnSum(device.ColumnSumArgs{Out: sums, X: x})
		return d.Sync()
	}()
	var oom *device.OutOfMemory
	if !errors.As(lack, &oom) || !strings.Contains(lack.Error(), "column_sum: the GPU has 0 of 67108864 bytes free, but 4096 were requested; the largest: 2.0 MiB activations") {
		t.Errorf("%v", lack)
	}
	t.Setenv("MONOTRON_EMU_MEMORY", "67112960") // and the least that the op can do with
	d.ColumnSum(device.ColumnSumArgs{Out: sums, X: x})
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}

// Claim: after a kernel's fault, or the hardware's, the device says so with what to do about it,
// and only that: a lack of memory is not made of it.
func TestFault(t *testing.T) {
	emulated(t)
	for fault, want := range map[string]string{
		"3": "an illegal memory access was encountered; a kernel failed, in this op or an earlier one: resume from the last checkpoint", "3,719": "unspecified launch failure; a kernel failed",
		"3,716": "; a kernel failed", "3,214": "; the GPU's memory has an error: resume from the last checkpoint on another GPU", "3,220": "; a link between GPUs failed: resume from the last checkpoint on another host",
	} {
		t.Run(fault, func(t *testing.T) { faulted(t, fault, want) })
	}
}

func faulted(t *testing.T, fault, want string) {
	t.Setenv("MONOTRON_EMU_FAULT", fault)
	d := openCopy(t)
	defer d.Close()
	x := d.Arena.Alloc(device.Activations, device.F32, 1000)
	for range 3 {
		d.Fill(x, 1)
	}
	first := d.Sync()
	lack := func() (err error) {
		defer device.CatchOutOfMemory(&err)
		d.Arena.Alloc(device.Activations, device.F32, 1<<26)
		return nil
	}()
	for what, err := range map[string]error{"waiting": first, "memory": lack} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "out of device memory") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Claim: the host cannot touch the emulated GPU's memory, as with a real one; a line
// that does dies in every test that trains on it.
func TestMemoryIsApart(t *testing.T) {
	emulated(t)
	if info, err := os.ReadFile("/proc/cpuinfo"); err != nil || !strings.Contains(string(info), " ospke") {
		t.Skip("this CPU has no memory protection keys")
	}
	d := open(t)
	defer d.Close()
	x := d.Arena.Zeroed(device.Activations, device.F32, 4)
	if got := device.ReadSlice[float32](d, x); d.Sync() != nil || got[0] != 0 {
		t.Fatalf("through the device: %v, %v", got, d.Err())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p == nil {
			t.Error("the host has read the GPU's memory")
		}
	}()
	t.Log(*(*float32)(x.Data))
}

// Claim: an op is not done when it is called, a mark behind it is reached later, and what
// follows the mark in another stream comes after.
func TestOpsRunBehindTheHost(t *testing.T) {
	emulated(t)
	d := open(t)
	defer d.Close()
	x := d.Arena.Zeroed(device.Activations, device.F32, 1<<18)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		d.Fill(x, 1)
	}
	streams := d.Streams()
	m, err := streams.Mark(streams.Ops())
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Drop(m)
	if early, err := streams.Reached(m); early || err != nil {
		t.Errorf("20 fills of a megabyte are done at once: %v", err)
	}
	other, err := streams.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Follow(other, m); err != nil {
		t.Fatal(err)
	}
	streams.FreeStream(other) // waits for what is in it
	if late, err := streams.Reached(m); !late || err != nil {
		t.Errorf("what follows a mark has ended before it: %v", err)
	}
}

// Claim: a GPU that does not start says what to do about it, in one line.
func TestStartErrorsAdvise(t *testing.T) {
	emulated(t)
	for number, want := range map[string]string{"35": "needs driver 580.65 or newer", "46": "another process", "802": "nvidia-fabricmanager", "803": "reboot", "220": "another host"} {
		t.Setenv("MONOTRON_EMU_START", number)
		_, err := cuda.Open(0)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), ", use --device cpu") {
			t.Errorf("%s: %v, want %q", number, err, want)
		}
	}
}

// Claim: what is taken of the GPU's memory is missing from what it has left.
func TestFreeMemory(t *testing.T) {
	emulated(t)
	t.Setenv("MONOTRON_EMU_MEMORY", "1073741824")
	d := open(t)
	defer d.Close()
	before, err := d.Streams().FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	d.Arena.Zeroed(device.Activations, device.F32, 1<<20)
	after, err := d.Streams().FreeMemory()
	if taken := before - after; err != nil || taken < 4<<20 {
		t.Errorf("%d bytes less for a tensor of %d (%v)", taken, 4<<20, err)
	}
}

// Claim: copies of any size, far beyond the pinned ring, arrive complete and in order with
// the ops, and the source may change as soon as Write has returned.
func TestCopiesThroughPinnedMemory(t *testing.T) {
	emulated(t)
	d := open(t)
	defer d.Close()
	for _, n := range []int64{1, 3, 1000, 1<<20 - 1, 1 << 20, 5<<20 + 7} { // f32: up to 20 MB, the ring is 16
		x, y := d.Arena.Alloc(device.Activations, device.F32, n), d.Arena.Alloc(device.Activations, device.F32, n)
		host := make([]float32, n)
		for round := range 3 {
			for i := range host {
				host[i] = float32(i%1000 + round)
			}
			device.WriteSlice(d, x, host)
			clear(host)
			d.Copy(y, x)
			got := device.ReadSlice[float32](d, y)
			for i, v := range got {
				if v != float32(i%1000+round) {
					t.Fatalf("%d elements, round %d: element %d is %g (%v)", n, round, i, v, d.Err())
				}
			}
		}
		d.Arena.Free(y)
		d.Arena.Free(x)
	}
}

// Claim: a head too wide for all kernels is refused, by name.
func TestWideHeadIsRefused(t *testing.T) {
	emulated(t)
	d := open(t)
	defer d.Close()
	s := d.Arena.Scope(device.Workspace)
	q, o, k := s.Alloc(device.BF16, 2, 1, 1, 512), s.Alloc(device.BF16, 2, 1, 1, 512), s.Alloc(device.BF16, 2, 1, 1, 512)
	d.AttentionForward(device.AttentionForwardArgs{O: o, Q: q, K: k, V: k, LSE: s.Alloc(device.F32, 1, 1, 2), Batch: 1, Window: -1, Scale: 1})
	if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "512 channels") {
		t.Error(err)
	}
}
