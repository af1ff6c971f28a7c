package devicetest

import (
	"bytes"
	"fmt"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Graphs runs every case three times on dev, plainly and as a graph (once to make it
// ready, once taken down, once again), and compares all bytes: an op that cannot be taken
// down, or that hands a kernel what changes from call to call, fails. A short test is of
// the first case of each op whose tensors are not empty.
func Graphs(t *testing.T, dev *device.Device) {
	if dev.NewGraph() == nil {
		t.Skipf("the %s device has no graphs", dev.Name)
	}
	oracle := ref.Open()
	defer oracle.Close()
	seen, nodes := map[device.Op]bool{}, map[device.Op]int64{}
	cases := Cases() // a short test takes few of them by itself
	if !testing.Short() {
		cases = shared(t)
	}
	eachOf(t, cases, func(t *testing.T, c Case) {
		if seen[c.Op] = true; testing.Short() && nodes[c.Op] > 0 {
			t.SkipNow()
		}
		plain := thrice(t, c, dev, oracle, nil)
		g := dev.NewGraph()
		defer g.Close()
		for i, b := range thrice(t, c, dev, oracle, g) {
			if !bytes.Equal(b.after, plain[i].after) {
				t.Errorf("%s differs when it runs as a graph", b.name)
			}
		}
		if nodes[c.Op] += g.Nodes; g.Err != nil || g.Runs != 2 {
			t.Errorf("%d launches: %v", g.Runs, g.Err)
		}
	})
	for op := range seen { // an empty tensor's graph has no nodes
		if nodes[op] == 0 {
			t.Errorf("the graphs of %s have no nodes", op)
		}
	}
}

func thrice(t *testing.T, c Case, dev, oracle *device.Device, g *device.Graph) []buffer {
	e := newEnv(dev, oracle, fmt.Sprint(c.Op, c.Name))
	call := c.Setup(e)
	for range 3 {
		_ = g.Run(func() error { call(); return nil }) // its error is the device's
	}
	e.collect()
	if err := dev.Sync(); err != nil {
		t.Fatal(err)
	}
	if g != nil {
		g.Close()
	}
	e.scope.Release()
	return e.buffers
}
