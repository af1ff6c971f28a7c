package device

import (
	"unsafe"
)

// counting is a Backend without memory and without arithmetic. A block has an address, and
// no storage; an op is checked for its shapes and, with a real backend, for
// whether that would run it and in how much workspace. So a run's own code says what the
// run takes.
type counting struct {
	name    string
	backing Backend // nil: this machine need not have the device
	given   int64   // bytes of addresses
	scratch int64   // most that an op worked in
	watch   Watching
}

// Watching is what a counting device shows and asks; each may be nil.
type Watching struct {
	Read func(dst []byte) // gives what the host reads; nil: zeros
	Ran  func(Shown)      // is shown every op
	Most bool             // what only values would say of a size is taken as large as it can be here, and not as in an even spread
}

// Shown is an op that a counting device was asked for.
type Shown struct {
	Op   Op
	Work       // what it has to do at least
	V    DType // that it computes in; negative: it only moves
	args unsafe.Pointer
}

// Shape is the sizes of the computation, as a Call has them; valid until Ran returns.
func (a *Shown) Shape() string { return ops[a.Op].shape(a.args) }

// asked is a backend that says what an op would need: its workspace outside the arena,
// or why it would be refused.
type asked interface {
	ask(op Op, args unsafe.Pointer) (scratch int64, err error)
}

// beyond is where counted blocks lie: above every address that a process can have.
const beyond = 1 << 52

// Counting makes a device of that name on which ops are only checked, and memory is only
// counted. With another device it takes the ops that that one takes; nil: any of ours.
func Counting(name string, backing *Device, w Watching) *Device {
	c := &counting{name: name, watch: w}
	if backing != nil {
		c.backing = backing.backend
	}
	return New(name, c)
}

// Counts reports whether tensors have no storage: their values are undefined.
func (d *Device) Counts() bool {
	_, is := d.backend.(*counting)
	return is
}

// Unseen reports whether memory is only counted and nobody is shown the ops: what repeats need
// not be done again.
func (d *Device) Unseen() bool {
	c, is := d.backend.(*counting)
	return is && c.watch.Ran == nil
}

// CountsMost reports whether sizes that only values would say are to be as large as they can be here.
func (d *Device) CountsMost() bool {
	c, is := d.backend.(*counting)
	return is && c.watch.Most
}

// Scratch is the most bytes that an op of a counting device would have worked in.
func (d *Device) Scratch() int64 {
	if c, is := d.backend.(*counting); is {
		return c.scratch
	}
	return 0
}

func (c *counting) Describe() string { return "counted" }

func (c *counting) Alloc(bytes int64) (unsafe.Pointer, error) {
	at := unsafe.Add(unsafe.Pointer(nil), beyond+c.given)
	c.given += (bytes + gpuAlignment) &^ (gpuAlignment - 1) // segments do not touch
	return at, nil
}

func (c *counting) Free(unsafe.Pointer, int64)         {}
func (c *counting) Write(unsafe.Pointer, []byte) error { return nil }
func (c *counting) Sync() error                        { return nil }
func (c *counting) Close()                             {}

// OnHost is true: what would be read where it lies is read by nobody.
func (c *counting) OnHost() bool { return true }

func (c *counting) Read(dst []byte, _ unsafe.Pointer) error {
	if c.watch.Read != nil {
		c.watch.Read(dst)
	}
	return nil
}

func (c *counting) Run(op Op, args unsafe.Pointer) error {
	if c.watch.Ran != nil {
		c.watch.Ran(Shown{op, ops[op].work(args), valueOf(op, args), args})
	}
	b, is := c.backing.(asked)
	if !is {
		return nil
	}
	bytes, err := b.ask(op, args)
	c.scratch = max(c.scratch, bytes)
	return err
}

// Graphs are those of the real one, or of any GPU's.
func (c *counting) Graphs() graphs {
	if c.backing == nil {
		if c.name == "cuda" {
			return countedGraphs{}
		}
		return nil
	}
	if b, ok := c.backing.(interface{ Graphs() graphs }); ok && b.Graphs() != nil {
		return countedGraphs{}
	}
	return nil
}

// countedGraphs hold nothing.
type countedGraphs struct{}

func (countedGraphs) begin() error { return nil }
func (countedGraphs) end() (graph unsafe.Pointer, nodes int64, err error) {
	return unsafe.Add(unsafe.Pointer(nil), beyond), 1, nil
}
func (countedGraphs) launch(unsafe.Pointer) error { return nil }
func (countedGraphs) drop(unsafe.Pointer)         {}
