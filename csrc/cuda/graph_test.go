//go:build cgo

package cuda_test

import (
	"os"
	"strings"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// Claim: every op can be taken down in a graph, and has the same bits then.
func TestGraphsOfOps(t *testing.T) { devicetest.Graphs(t, open(t)) }

// graphOf makes a graph, where the device has them.
func graphOf(t *testing.T, d *device.Device) *device.Graph {
	t.Helper()
	g := d.NewGraph()
	if g == nil {
		t.Fatal("the device has no graphs")
	}
	return g
}

// Claim: a graph's work is called twice and no more; each run reads what its tensors hold
// then; while it is taken down nothing happens; its temporary tensors are in memory that
// counts and that nobody else is given.
func TestGraphRuns(t *testing.T) {
	d := open(t)
	defer d.Close()
	g := graphOf(t, d)
	x, sum := d.Arena.Alloc(device.Activations, device.F32, 1000), d.Arena.Zeroed(device.Workspace, device.F32, 1000)
	calls := 0
	var inside device.Tensor
	work := func() error {
		calls++
		inside = d.Arena.Alloc(device.Activations, device.F32, 1000)
		defer d.Arena.Free(inside)
		d.Add(inside, x, x)
		d.Add(sum, sum, inside)
		return nil
	}
	host, want := make([]float32, 1000), float32(0)
	for run := range 5 {
		for i := range host {
			host[i] = float32(run + 1)
		}
		want += 2 * float32(run+1)
		device.WriteSlice(d, x, host)
		if err := g.Run(work); err != nil {
			t.Fatal(err)
		}
		if got := device.ReadSlice[float32](d, sum); got[0] != want || got[999] != want {
			t.Fatalf("run %d: %g, want %g", run, got[0], want)
		}
		if other := d.Arena.Alloc(device.Workspace, device.F32, 1000); other.Data == inside.Data {
			t.Fatal("memory of the graph was given away")
		}
	}
	if calls != 2 || g.Runs != 4 || g.Nodes != 2 || g.Err != nil {
		t.Errorf("called %d times, %d launches of %d nodes: %v", calls, g.Runs, g.Nodes, g.Err)
	}
	if used := d.Arena.Usage().Now[device.Activations]; used < 64<<20 {
		t.Errorf("%d bytes of activations: the graph's memory does not count", used)
	}
}

// Claim: work that needs the host is not taken down; it says so and is done plainly.
func TestGraphThatNeedsTheHost(t *testing.T) {
	d := open(t)
	defer d.Close()
	for name, use := range map[string]func(x device.Tensor){
		"write": func(x device.Tensor) { device.WriteSlice(d, x, []float32{1, 1, 1, 1}) },
		"read":  func(x device.Tensor) { device.ReadSlice[float32](d, x) },
		"sync":  func(device.Tensor) { _ = d.Sync() },
	} {
		g := graphOf(t, d)
		x := d.Arena.Zeroed(device.Workspace, device.F32, 4)
		for range 3 {
			if err := g.Run(func() error { use(x); d.Add(x, x, x); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		device.ReadSlice[float32](d, x)
		if err := d.Sync(); err != nil || g.Err == nil || g.Runs != 0 || !strings.Contains(g.Err.Error(), "host") {
			t.Errorf("%s: %v, %d launches: %v", name, err, g.Runs, g.Err)
		}
	}
}

// Claim: a tensor that a graph works on cannot be freed, nor can scratch that it works in
// be taken away when a later op needs more.
func TestGraphKeepsItsMemory(t *testing.T) {
	d := open(t)
	defer d.Close()
	g := graphOf(t, d)
	x, out := d.Arena.Zeroed(device.Workspace, device.F32, 64, 8), d.Arena.Zeroed(device.Workspace, device.F32, 8)
	d.Fill(x, 1)
	sum := func() error { d.ColumnSum(device.ColumnSumArgs{Out: out, X: x}); return nil }
	for range 2 {
		if err := g.Run(sum); err != nil {
			t.Fatal(err)
		}
	}
	rows, gamma := d.Arena.Zeroed(device.Workspace, device.BF16, 2048, 8192), d.Arena.Zeroed(device.Workspace, device.BF16, 8192)
	d.NormBackward(device.NormBackwardArgs{DX: rows, DGamma: d.Arena.Zeroed(device.Workspace, device.F32, 8192), DY: rows, X: rows, Gamma: gamma, // 512 parts: 34 MB of scratch
		Rstd: d.Arena.Zeroed(device.Workspace, device.F32, 2048), Kind: device.RMSNormKind})
	if err := g.Run(sum); err != nil {
		t.Fatal(err)
	}
	if got := device.ReadSlice[float32](d, out); d.Sync() != nil || got[7] != 192 || g.Runs != 2 {
		t.Errorf("%g after %d launches: %v", got[7], g.Runs, d.Err())
	}
	func() {
		defer func() {
			if p, _ := recover().(string); !strings.Contains(p, "a graph still uses it") {
				t.Errorf("freed: %v", p)
			}
		}()
		d.Arena.Free(x)
	}()
	g.Close()
	d.Arena.Free(x)
}

// Claim: the emulator finds a graph whose memory was given back to the GPU, and a capture
// that another call of its thread spoils.
func TestGraphOfFreedMemory(t *testing.T) {
	emulated(t)
	b, err := device.OpenLibrary(os.Getenv(cuda.LibraryVariable), 0)
	if err != nil {
		t.Fatal(err)
	}
	d := device.New("cuda", b)
	p, err := b.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	x, g := device.View(p, device.F32, 1024), graphOf(t, d)
	fill := func() error { d.Fill(x, 1); return nil }
	for range 2 {
		if err := g.Run(fill); err != nil {
			t.Fatal(err)
		}
	}
	b.Free(p, 4096)
	if err := g.Run(fill); err == nil || !strings.Contains(err.Error(), "uses memory that was freed") {
		t.Errorf("a graph of freed memory: %v", err)
	}
	other := device.New("cuda", b)
	spoiled := graphOf(t, other)
	for range 2 {
		err = spoiled.Run(func() error { _, err := b.Alloc(4096); return err })
	}
	if err != nil || spoiled.Err == nil || !strings.Contains(spoiled.Err.Error(), "capture") {
		t.Errorf("memory taken while a graph is taken down: %v, %v", err, spoiled.Err)
	}
}
