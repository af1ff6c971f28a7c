package device

import (
	"errors"
	"runtime"
	"unsafe"
)

// graphs is what a Backend gives by its method Graphs that can take ops down, from begin to
// end on one thread, and enqueue them again as one.
type graphs interface {
	begin() error
	end() (graph unsafe.Pointer, nodes int64, err error)
	launch(graph unsafe.Pointer) error
	drop(graph unsafe.Pointer)
}

// Graph is work that is the same every time but for what its tensors hold: ops alone, which
// nothing on the host depends on. The first run does it plainly, so that its memory and
// whatever a library makes at first use are there; the second takes it down; from then on
// one call enqueues it. Its temporary tensors lie in memory of its own, where they lie the
// same way each time. A nil Graph does the work plainly every time.
type Graph struct {
	Nodes int64 // kernels, copies and fills of it; 0: it was not taken down yet
	Runs  int64 // that were one call
	Err   error // why it cannot be taken down; the work is then done plainly

	device  *Device
	graphs  graphs
	taken   unsafe.Pointer
	memory  *stretch
	ready   bool // it was done once
	trouble error
}

// NewGraph is nil where the device has none.
func (d *Device) NewGraph() *Graph {
	b, ok := d.backend.(interface{ Graphs() graphs })
	if !ok || b.Graphs() == nil {
		return nil
	}
	g := &Graph{device: d, graphs: b.Graphs(), memory: d.Arena.stretch()}
	d.made = append(d.made, g)
	return g
}

// Run does the work. An Observer, who wants to see every op, sees it done plainly.
func (g *Graph) Run(work func() error) error {
	switch {
	case g == nil || g.Err != nil || g.device.Observe != nil:
		return work()
	case g.taken != nil:
		return g.launch()
	case !g.ready:
		defer g.memory.enter()()
		err := work()
		g.ready = err == nil && g.device.err == nil
		return err
	}
	if g.Err = g.take(work); g.Err != nil {
		return work()
	}
	return g.launch()
}

// take lets work be taken down: nothing of it is done.
func (g *Graph) take(work func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.graphs.begin(); err != nil {
		return err
	}
	defer g.memory.enter()()
	g.device.taking = g
	defer func() {
		g.device.taking = nil
		taken, nodes, failed := g.graphs.end()
		if err = errors.Join(g.trouble, err, failed); err != nil {
			if failed == nil {
				g.graphs.drop(taken)
			}
			return
		}
		g.taken, g.Nodes = taken, nodes
	}()
	return work()
}

func (g *Graph) launch() error {
	if g.device.err == nil {
		g.device.keep(g.graphs.launch(g.taken))
		g.Runs++
	}
	return g.device.err
}

// keep notes what went wrong while the graph is taken down.
func (g *Graph) keep(err error) {
	if g.trouble == nil {
		g.trouble = err
	}
}

var errHost = errors.New("an operation needs the host, but a CUDA graph runs only on the device")

// uses notes the blocks that an op of the graph works on outside the graph's own memory.
func (g *Graph) uses(op Op, args unsafe.Pointer) {
	words := unsafe.Slice((*uintptr)(args), uintptr(op.ArgBytes())/unsafe.Sizeof(uintptr(0)))
	for _, w := range words {
		if b := g.device.Arena.holder(w); b != nil && b.stretch != g.memory {
			b.graph = g
		}
	}
}

// Close forgets what was taken down; the graph's own memory is freed with the arena's.
func (g *Graph) Close() {
	if g.taken != nil {
		g.graphs.drop(g.taken)
		g.taken = nil
	}
}
