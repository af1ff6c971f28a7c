//go:build cgo && linux

package nccl

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/comm"
)

// World gives groups whose tensors are on GPUs, one GPU a rank. The ranks meet
// over a host world, which also notifies them that one of them has failed. NCCL
// orders its sums itself: alike in every run of one layout and version.
type World struct {
	host    comm.Host
	library *nccl.Library
	device  *device.Device
	streams device.Streams
	limit   time.Duration

	mu       sync.Mutex // of all below
	err      error
	joined   []*communicator // in the order of their making: any two ranks have theirs in one order
	kept     int64           // bytes of the GPU that they took
	done     chan struct{}   // closed by End
	watched  sync.WaitGroup
	checking sync.Mutex // of check, which does not block calls
	telling  sync.Mutex // of the functions that enqueued.Tell sets
}

// glance is how often what is under way is checked.
const glance = 20 * time.Millisecond

// NewWorld is a rank's world on its GPU d. limit is the longest that a collective
// may take from when it was called.
func NewWorld(library *nccl.Library, h comm.Host, d *device.Device, limit time.Duration) *World {
	w := &World{host: h, library: library, device: d, streams: d.Streams(), limit: limit, done: make(chan struct{})}
	w.watched.Go(w.watch)
	return w
}

// openNCCL finds NCCL; version is its own.
func openNCCL() (over opener, version string, err error) {
	library, err := nccl.Open()
	if err != nil {
		return nil, "", err
	}
	over = func(h comm.Host, d *device.Device, limit time.Duration) comm.Carrier {
		w := NewWorld(library, h, d, limit)
		return comm.Carrier{Groups: w, Note: w.note, End: w.End}
	}
	return over, nccl.Spell(library.Version()), nil
}

// note names the library, and what its communicators came to.
func (w *World) note() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%s, %s, which took %d MiB of the GPU's memory", w.library.Describe(), logging.Count(len(w.joined), "communicator"), w.kept>>20)
}

// Group joins the communicator of a group's ranks; all its members call it together.
func (w *World) Group(rank int, name string, members []int, d *device.Device) (*comm.Group, error) {
	via, err := w.host.Group(rank, name, members, d)
	if err != nil || via.Size() == 1 {
		return via, err
	}
	c := w.of(via.Members())
	if c == nil {
		id, err := w.share(via)
		if err != nil {
			return nil, err
		}
		if c, err = w.join(id, via); err != nil {
			return nil, err
		}
	}
	return via.Over(func(comm.Engine) comm.Engine {
		return &group{Membership: via.Membership(), world: w, via: via, on: c}
	}), nil
}

// of is the communicator of these ranks, in this order; nil: none yet.
func (w *World) of(members []int) *communicator {
	for _, c := range w.all() {
		if slices.Equal(c.members, members) {
			return c
		}
	}
	return nil
}

// all are the communicators so far.
func (w *World) all() []*communicator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.joined)
}

// join opens a communicator and its stream. A failure that came meanwhile has
// given up the communicators of then, so that this one gives itself up.
func (w *World) join(id nccl.ID, via *comm.Group) (*communicator, error) {
	defer onThread()()
	if err := w.streams.Enter(); err != nil {
		return nil, err
	}
	before, err := w.streams.FreeMemory()
	if err != nil {
		return nil, err
	}
	made, err := w.library.Init(id, via.Rank(), via.Size(), w.limit, w.Err)
	if err != nil {
		return nil, fmt.Errorf("group %s of ranks %v: %w; --distributed-backend gloo works without NCCL", via.Name(), via.Members(), err)
	}
	stream, err := w.streams.NewStream()
	if err != nil {
		made.Abort()
		return nil, err
	}
	after, err := w.streams.FreeMemory()
	c := &communicator{members: via.Members(), nccl: made, stream: stream}
	if err := errors.Join(err, w.take(c, before-after)); err != nil {
		made.Abort()
		w.streams.FreeStream(stream)
		return nil, err
	}
	return c, nil
}

// take keeps a communicator, which has taken so much of the GPU, for who gives up or
// leaves all of them, unless that has begun.
func (w *World) take(c *communicator, bytes int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.joined = append(w.joined, c)
		w.kept += max(bytes, 0)
	}
	return w.err
}

// share gives the first rank's id to all of a group, through the host.
func (w *World) share(via *comm.Group) (id nccl.ID, err error) {
	if via.Rank() == 0 {
		if id, err = w.library.NewID(); err != nil {
			return id, err
		}
	}
	buffer, err := device.HostAlloc(int64(len(id)))
	if err != nil {
		return id, exitcode.Errorf(exitcode.Internal, "memory for the id of a communicator cannot be allocated: %w", err)
	}
	defer device.HostFree(buffer, int64(len(id)))
	bytes := unsafe.Slice((*byte)(buffer), len(id))
	copy(bytes, id[:])
	err = via.Broadcast(device.View(buffer, device.I32, int64(len(id)/4)), 0).Wait()
	copy(id[:], bytes)
	return id, err
}

// onThread keeps a goroutine on its thread until the result is called: a GPU is
// chosen by thread.
func onThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// Err is why nothing continues any more; nil: all is well.
func (w *World) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Abort ends everything with err, here and on the other ranks.
func (w *World) Abort(err error) {
	w.host.Abort(err)
	w.fail(err)
}

// leaving is how long a rank that fails waits for NCCL to give up.
const leaving = 10 * time.Second

// fail gives up all communicators, side by side: NCCL's abort waits until the other
// ranks of the host give up the same one, and ranks that do it one after the other in
// different orders would wait for each other. A peer that is stopped does not come at
// all: after a while this rank continues without NCCL's consent.
func (w *World) fail(err error) {
	w.mu.Lock()
	first := w.err == nil
	if first {
		w.err = err
	}
	joined := slices.Clone(w.joined)
	w.mu.Unlock()
	if !first {
		return
	}
	var under sync.WaitGroup
	for _, c := range joined {
		under.Go(c.nccl.Abort)
	}
	over := make(chan struct{})
	go func() {
		under.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(leaving):
	}
}

// watch checks what is under way until the end: a trouble, a peer's failure or
// a call that takes too long gives up everything.
func (w *World) watch() {
	defer onThread()()
	for {
		select {
		case <-w.done:
			return
		case <-time.After(glance):
		}
		if err := w.check(); err != nil {
			w.Abort(err)
			return
		}
	}
}

// check asks the GPU without the lock of calls, which continue meanwhile.
func (w *World) check() error {
	w.checking.Lock()
	defer w.checking.Unlock()
	if err := w.host.Err(); err != nil {
		return err
	}
	if err := w.streams.Enter(); err != nil {
		return err
	}
	for _, c := range w.all() {
		if w.Err() != nil {
			return nil
		}
		if err := w.checkOne(c); err != nil {
			return err
		}
	}
	return nil
}

// End waits for what is under way and leaves every communicator. A rank that has failed
// gives them up instead, and does not wait for that: its peers, who have to give them up
// too, get the failure after this.
func (w *World) End(failed error) error {
	defer w.library.Forget()
	if failed != nil {
		close(w.done)
		go w.fail(failed)
		return failed
	}
	var err error
	for err == nil && w.Err() == nil && w.busy() {
		time.Sleep(glance / 10)
		err = w.check()
	}
	if err != nil {
		w.Abort(err)
	}
	close(w.done)
	w.watched.Wait()
	return w.leave()
}

// leave closes the communicators in the order in which they were joined: closing one
// waits for the other ranks of the host to close it. It holds no lock, for a close that
// is in progress asks for Err.
func (w *World) leave() error {
	defer onThread()()
	for _, c := range w.all() {
		if w.Err() == nil {
			if err := c.nccl.Close(); err != nil {
				w.Abort(fmt.Errorf("the communicator of ranks %v: %w", c.members, err))
			}
		}
	}
	for _, c := range w.all() {
		w.streams.FreeStream(c.stream)
	}
	return w.Err()
}

func (w *World) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.joined {
		if len(c.open) > 0 {
			return true
		}
	}
	return false
}
