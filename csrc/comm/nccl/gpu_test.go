//go:build cgo && linux

package nccl_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/cuda"
	"monotron/csrc/device"
)

// alone is a communicator of one rank on a GPU, on a stream of its own.
type alone struct {
	d       *device.Device
	library *nccl.Library
	comm    *nccl.Comm
	stream  device.Stream
}

// onGPU joins one; skips where MONOTRON_CUDA_LIBRARY names no GPU's library.
func onGPU(t *testing.T) *alone {
	t.Helper()
	if path := os.Getenv(cuda.LibraryVariable); path == "" || strings.Contains(path, "cudaemu") {
		t.Skipf("%s names no GPU's library; scripts/gpu.sh sets it", cuda.LibraryVariable)
	}
	runtime.LockOSThread() // a GPU is chosen by thread
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	a := &alone{d: d}
	s := d.Streams()
	if a.library, err = nccl.Open(); err != nil {
		t.Fatal(err)
	}
	t.Log(a.library.Describe())
	id, err := a.library.NewID()
	if err = errors.Join(err, s.Enter()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if a.comm, err = a.library.Init(id, 0, 1, time.Minute, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	t.Logf("joined after %v", time.Since(began))
	if a.stream, err = s.NewStream(); err != nil {
		t.Fatal(err)
	}
	return a
}

// holds makes a call on x, whose values it must leave in out.
func (a *alone) holds(call func(out, x device.Tensor) error, inPlace bool) error {
	s, d := a.d.Streams(), a.d
	x, out := d.Arena.Zeroed(device.Workspace, device.F32, 1000), d.Arena.Zeroed(device.Workspace, device.F32, 1000)
	defer d.Arena.Free(x)
	defer d.Arena.Free(out)
	if inPlace {
		out = x
	}
	d.Fill(x, 3)
	ready, err := s.Mark(s.Ops())
	if err != nil {
		return err
	}
	defer s.Drop(ready)
	if err := errors.Join(s.Follow(a.stream, ready), call(out, x)); err != nil {
		return err
	}
	done, err := s.Mark(a.stream)
	if err != nil {
		return err
	}
	defer s.Drop(done)
	if err := s.Follow(s.Ops(), done); err != nil {
		return err
	}
	for _, v := range device.ReadSlice[float32](d, out) {
		if v != 3 {
			return fmt.Errorf("%g came, 3 went", v)
		}
	}
	return d.Sync()
}

// Claim: the machine's own NCCL takes each of our calls and does it, for a rank alone.
func TestEveryCallOnGPU(t *testing.T) {
	a := onGPU(t)
	for name, c := range map[string]struct {
		inPlace bool
		call    func(out, x device.Tensor) error
	}{
		"all_reduce":     {true, func(_, x device.Tensor) error { return a.comm.AllReduce(x, nccl.Sum, a.stream) }},
		"max":            {true, func(_, x device.Tensor) error { return a.comm.AllReduce(x, nccl.Max, a.stream) }},
		"reduce":         {true, func(_, x device.Tensor) error { return a.comm.Reduce(x, nccl.Sum, 0, a.stream) }},
		"broadcast":      {true, func(_, x device.Tensor) error { return a.comm.Broadcast(x, 0, a.stream) }},
		"all_gather":     {false, func(out, x device.Tensor) error { return a.comm.AllGather(out, x, a.stream) }},
		"reduce_scatter": {false, func(out, x device.Tensor) error { return a.comm.ReduceScatter(out, x, nccl.Sum, a.stream) }},
		"to itself": {false, func(out, x device.Tensor) error {
			return a.comm.Batch([]nccl.Transfer{{Peer: 0, Send: true, T: x}, {Peer: 0, T: out}}, a.stream)
		}},
	} {
		if err := a.holds(c.call, c.inPlace); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.latency(t)
	if err := a.comm.Err(); err != nil {
		t.Error(err)
	}
	if err := a.comm.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if err := a.d.Sync(); err != nil {
		t.Error(err)
	}
}

// latency measures how long a call blocks the host.
func (a *alone) latency(t *testing.T) {
	x := a.d.Arena.Zeroed(device.Workspace, device.F32, 1000)
	defer a.d.Arena.Free(x)
	var took []time.Duration
	for range 200 {
		began := time.Now()
		if err := a.comm.AllReduce(x, nccl.Sum, a.stream); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("a call holds the host up for %v (median), %v (worst)", took[len(took)/2], took[len(took)-1])
}

// Claim: a communicator that is given up while calls are under way leaves the GPU usable.
func TestAbortOnGPU(t *testing.T) {
	a := onGPU(t)
	x := a.d.Arena.Zeroed(device.Workspace, device.F32, 1<<20)
	for range 50 {
		if err := a.comm.AllReduce(x, nccl.Sum, a.stream); err != nil {
			t.Fatal(err)
		}
	}
	a.comm.Abort()
	if err := a.comm.AllReduce(x, nccl.Sum, a.stream); err == nil {
		t.Error("a communicator that was given up takes calls")
	}
	a.d.Fill(x, 1)
	if v := device.ReadSlice[float32](a.d, x); a.d.Sync() != nil || v[0] != 1 {
		t.Errorf("%g after the end: %v", v[0], a.d.Err())
	}
}
