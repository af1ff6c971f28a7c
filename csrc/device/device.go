package device

import (
	"cmp"
	"fmt"
	"time"
	"unsafe"
)

// Backend does the arithmetic: ref in Go, the others behind device.h.
type Backend interface {
	// Describe names libraries and instruction sets in use.
	Describe() string
	// Alloc returns bytes of device memory, aligned to 64.
	Alloc(bytes int64) (unsafe.Pointer, error)
	Free(p unsafe.Pointer, bytes int64)
	// Write copies to the device, in order with the ops, and returns when src is
	// free again; Read copies to the host and returns when the bytes are there.
	Write(dst unsafe.Pointer, src []byte) error
	Read(dst []byte, src unsafe.Pointer) error
	// Sync waits for all that was enqueued and returns the first trouble.
	Sync() error
	// Run enqueues op; args points to its argument struct.
	Run(op Op, args unsafe.Pointer) error
	// Close gives back what the backend holds for itself. No call may follow.
	Close()
	// OnHost reports whether the memory is the host's, and an op done when Run returns.
	OnHost() bool
}

// Observer sees every op when it is done, for profiles: where ops run behind the host's
// back, each is waited for.
type Observer func(Call)

// Call is one op as an Observer sees it.
type Call struct {
	Op     Op
	Shape  string // sizes of the computation
	Work          // what it has to do at least
	Start  time.Time
	Took   time.Duration
	Queued time.Duration // of it, until there was a core: other ranks had them all

	device *Device
	args   unsafe.Pointer
}

// warming is a backend that can do an op while its data lies in the caches.
type warming interface {
	warm(op Op, args unsafe.Pointer) (time.Duration, error)
}

// queueing is a backend whose ops begin when there is a core for them.
type queueing interface {
	lastQueued() time.Duration
}

// Warm does the op again, every tile of it twice, and returns what the second passes took, evenly
// shared by all threads: the time of an op whose data comes from the caches. What the op adds to
// is added to again and again, so that results count for nothing afterwards. 0: the device cannot
// tell. For an Observer, before it returns.
func (c Call) Warm() time.Duration {
	b, ok := c.device.backend.(warming)
	if !ok {
		return 0
	}
	took, err := b.warm(c.Op, c.args)
	c.device.keep(err)
	return took
}

// Device is one rank's way to its kernels and its memory. It is used by one
// goroutine at a time.
type Device struct {
	Name    string // "ref", "cpu", "cuda"
	Unit    string // which of its kind, where ranks cannot share one: a GPU's UUID; "": not known, or any number can
	Observe Observer
	Arena   *Arena

	// Common has kernels of this process give bits that no layout changes: by the instruction sets that
	// processors of the kind have in common, by one kernel for all shapes, by no library; nil: they do anyway.
	Common func()

	backend Backend
	shelves []*shelf
	fused   Tensor // the workspace of FuseAttention
	err     error
	made    []*Graph
	taking  *Graph // what is enqueued is taken down for it; nil: it is done
}

// New makes a rank's device over a backend.
func New(name string, b Backend) *Device {
	d := &Device{Name: name, backend: b}
	d.Arena = newArena(d)
	if c, ok := b.(interface{ common() }); ok {
		d.Common = c.common
	}
	return d
}

// Through is another device over what wrap makes of d's backend, which both then use.
func (d *Device) Through(wrap func(Backend) Backend) *Device {
	other := New(d.Name, wrap(d.backend))
	other.Common = d.Common
	return other
}

// Close gives back the device's memory. Neither it nor its tensors may be used
// afterwards.
func (d *Device) Close() {
	d.Arena.Close()
	d.backend.Close()
}

// IsGPU reports whether the device is a GPU, be it emulated or counted only.
func (d *Device) IsGPU() bool { return d.Name == "cuda" }

// OnHost reports whether tensors can be read and written where they lie, between ops.
func (d *Device) OnHost() bool { return d.backend.OnHost() }

// Apart reports whether the device's memory is not the host's. A device that counts answers for the one that it
// stands for.
func (d *Device) Apart() bool {
	if d.Counts() {
		return d.IsGPU()
	}
	return !d.OnHost()
}

// Products names what makes matrix products, with its version, where that is another library
// than the device's; "": none is.
func (d *Device) Products() string {
	if b, ok := d.backend.(interface{ Products() string }); ok {
		return b.Products()
	}
	return ""
}

// Refused lists products that our own kernels made instead of Products: their shapes, and
// how often; "": none.
func (d *Device) Refused() string {
	if b, ok := d.backend.(interface{ Refused() string }); ok {
		return b.Refused()
	}
	return ""
}

// Describe names what does the work.
func (d *Device) Describe() string { return d.backend.Describe() }

// Write copies host values into t, which is contiguous.
func (d *Device) Write(t Tensor, src []byte) {
	if !t.Contiguous() || int64(len(src)) != t.Bytes() {
		panic(fmt.Sprintf("device: %d bytes cannot be written into %v", len(src), t))
	}
	if d.taking != nil {
		d.keep(errHost)
		return
	}
	if t.Offloaded() {
		d.keep(d.Put(t, src))
		return
	}
	d.keep(d.backend.Write(t.Data, src))
}

// Read copies t, which is contiguous, to the host. It waits for the ops before it.
func (d *Device) Read(dst []byte, t Tensor) {
	if !t.Contiguous() || int64(len(dst)) != t.Bytes() {
		panic(fmt.Sprintf("device: %d bytes cannot be read from %v", len(dst), t))
	}
	if d.taking != nil {
		d.keep(errHost)
		return
	}
	if t.Offloaded() {
		d.keep(d.Fetch(dst, t))
		return
	}
	d.keep(d.backend.Read(dst, t.Data))
}

// Sync waits for everything enqueued and returns the first trouble so far.
func (d *Device) Sync() error {
	if d.taking != nil {
		d.keep(errHost)
		return d.err
	}
	d.keep(d.backend.Sync())
	return d.err
}

// Try does ops that may fail: their error is not the device's, unless it can do no more.
func (d *Device) Try(f func()) error {
	if d.err != nil {
		return d.err
	}
	f()
	err := d.err
	d.err = d.backend.Sync()
	return cmp.Or(d.err, err)
}

// Err is the first trouble known so far, without waiting.
func (d *Device) Err() error { return d.err }

// Fail makes err the device's trouble, unless there was some before.
func (d *Device) Fail(err error) { d.keep(err) }

func (d *Device) keep(err error) {
	switch {
	case err == nil:
	case d.taking != nil:
		d.taking.keep(err)
	case d.err == nil:
		d.err = err
	}
}

// dropGraphs forgets what was taken down.
func (d *Device) dropGraphs() {
	for _, g := range d.made {
		g.Close()
	}
	d.made = nil
}

// run enqueues op, when its shapes fit; args points to its argument struct.
func (d *Device) run(op Op, args unsafe.Pointer) {
	op.need(args)
	if d.err != nil {
		return
	}
	if d.taking != nil {
		d.taking.uses(op, args)
	}
	if d.Observe == nil {
		d.keep(d.afford(d.backend.Run(op, args)))
		return
	}
	start := time.Now()
	d.keep(d.afford(d.backend.Run(op, args)))
	d.keep(d.backend.Sync())
	took := time.Since(start)
	c := Call{Op: op, Shape: ops[op].shape(args), Work: ops[op].work(args), Start: start, Took: took, device: d, args: args}
	if b, ok := d.backend.(queueing); ok {
		c.Queued = b.lastQueued()
	}
	d.Observe(c)
}

// WriteSlice copies host values of any element type into t.
func WriteSlice[T any](d *Device, t Tensor, src []T) { d.Write(t, AsBytes(src)) }

// ReadSlice returns t's elements, whose size must be T's.
func ReadSlice[T any](d *Device, t Tensor) []T {
	out := make([]T, t.Len())
	d.Read(AsBytes(out), t)
	return out
}

// AsBytes is the memory of s.
func AsBytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), uintptr(len(s))*unsafe.Sizeof(one))
}
