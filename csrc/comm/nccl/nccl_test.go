//go:build cgo && linux

package nccl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/csrc/comm/nccl/fake"
	"monotron/csrc/device"
)

// alone is a communicator of one rank, on the stand-in, and a GPU for it. It sleeps by
// sleep.
func alone(t testing.TB, lost func() error, sleep func()) (lib *fake.Library, c *Comm, gpu *fake.GPU) {
	t.Helper()
	lib, err := fake.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONOTRON_NCCL", lib.Path)
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Forget)
	id, err := l.NewID()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = l.Init(id, 0, 1, time.Minute, lost); err != nil {
		t.Fatal(err)
	}
	l.sleep = func(time.Duration) { sleep() }
	return lib, c, lib.GPU()
}

func well() error { return nil }

// floats are n of them, as C's memory holds them.
func floats(t testing.TB, n int64) device.Tensor {
	t.Helper()
	buffer, err := device.HostAlloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.HostFree(buffer, 4*n) })
	return device.View(buffer, device.F32, n)
}

// Claim: NCCL says "in progress" to every call; one that it takes soon costs the host no
// sleep, one that it takes late costs some, and either ends well.
func TestCallsAreTaken(t *testing.T) {
	var lib *fake.Library
	slept := 0
	lib, c, gpu := alone(t, well, func() { slept++; lib.Slow(1) })
	x, s := floats(t, 8), gpu.Ops()
	for _, call := range []struct {
		what string
		f    func() error
	}{
		{"all_reduce", func() error { return c.AllReduce(x, Sum, s) }},
		{"reduce", func() error { return c.Reduce(x, Max, 0, s) }},
		{"broadcast", func() error { return c.Broadcast(x, 0, s) }},
		{"all_gather", func() error { return c.AllGather(x, x, s) }},
		{"reduce_scatter", func() error { return c.ReduceScatter(x, x, Sum, s) }},
		{"batch", func() error { return c.Batch([]Transfer{{0, true, x}, {0, false, x}}, s) }},
	} {
		for _, polls := range []int{1, 20, 64} {
			lib.Slow(polls)
			if slept = 0; call.f() != nil || slept != 0 {
				t.Errorf("%s: slept %d times for a call that was taken when asked for the %dth time", call.what, slept, polls)
			}
		}
		lib.Slow(1 << 20)
		if slept = 0; call.f() != nil || slept != 1 {
			t.Errorf("%s: slept %d times for a call that was taken during the first sleep", call.what, slept)
		}
	}
	lib.Slow(0)
	if err := errors.Join(gpu.Sync(), c.Close()); err != nil || lib.Sins() != "" {
		t.Errorf("%v; NCCL would forbid: %s", err, lib.Sins())
	}
}

// Claim: NCCL is found where pip lays it, in the Python of VIRTUAL_ENV before that of
// CONDA_PREFIX, after what the linker knows; MONOTRON_NCCL alone counts where it is set.
func TestFoundNextToTorch(t *testing.T) {
	roots := map[string]string{"VIRTUAL_ENV": t.TempDir(), "CONDA_PREFIX": t.TempDir()}
	var want []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		dir := filepath.Join(roots[name], "lib/python3.12/site-packages/nvidia/nccl/lib")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := fake.Build(dir); err != nil {
			t.Fatal(err)
		}
		want = append(want, filepath.Join(dir, "libnccl.so.2"))
	}
	got := nextToTorch(func(name string) string { return roots[name] })
	if len(got) < 2 || !slices.Equal(got[:2], want) {
		t.Errorf("%q, want first %q", got, want)
	}
	t.Setenv("MONOTRON_NCCL", "")
	t.Setenv("VIRTUAL_ENV", roots["VIRTUAL_ENV"])
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Forget()
	if l.path != "libnccl.so.2" && l.path != want[0] { // where this machine's linker knows one
		t.Errorf("%s was opened", l.path)
	}
	t.Setenv("MONOTRON_NCCL", "/no/such")
	if _, err := Open(); err == nil {
		t.Error("MONOTRON_NCCL names nothing, and NCCL was found elsewhere")
	}
}

// Claim: a call that is never taken ends with the error that its rank gets meanwhile, or when its time
// is up, with the interface that NCCL meets over.
func TestCallIsNeverTaken(t *testing.T) {
	lost := errors.New("rank 1 is lost")
	var reported error
	lib, c, gpu := alone(t, func() error { return reported }, func() { time.Sleep(time.Microsecond) })
	lib.Slow(1 << 30)
	reported = lost
	if err := c.AllReduce(floats(t, 8), Sum, gpu.Ops()); !errors.Is(err, lost) {
		t.Errorf("%v, want %v", err, lost)
	}
	reported, c.limit = nil, time.Millisecond
	t.Setenv("NCCL_SOCKET_IFNAME", "=eth7")
	err := c.AllReduce(floats(t, 8), Sum, gpu.Ops())
	if err == nil || !strings.Contains(err.Error(), "all_reduce took longer than 1ms") || !strings.HasSuffix(err.Error(), "(NCCL_SOCKET_IFNAME is =eth7)") {
		t.Errorf("%v", err)
	}
	c.Abort()
	lib.Slow(0)
}

// What a call costs the host that NCCL takes after 20 microseconds.
func BenchmarkCall(b *testing.B) {
	slept := 0
	_, c, gpu := alone(b, well, func() { slept++; time.Sleep(100 * time.Microsecond) })
	x, took := floats(b, 8), make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		start := time.Now()
		if err := c.AllReduce(x, Sum, gpu.Ops()); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "us/median")
	b.ReportMetric(float64(slept)/float64(len(took)), "sleeps/op")
}
