//go:build cgo && linux

package nccl

import (
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// group is a rank's engine on the communicator of its ranks.
type group struct {
	comm.Membership
	world *World
	via   *comm.Group // the same ranks, over the host
	on    *communicator

	next int64 // number of the next collective
}

// enqueued is a collective on the communicator's stream.
type enqueued struct {
	group *group
	call  *comm.Call
	ready device.Mark // behind the ops before it
	mark  device.Mark // behind it
	done  bool        // and the mark dropped
	err   error       // it could not be enqueued

	begun, over     bool   // as World.watch has seen: the GPU has come to it, ready is dropped; it is done. Of World.telling
	onBegun, onOver func() // nil: nobody asks
}

// Start enqueues a collective behind the ops so far. It does not wait for peers.
func (g *group) Start(c *comm.Collective) comm.Work {
	w := g.world
	if c.Op == comm.Barrier { // of the hosts
		if err := w.Err(); err != nil {
			return comm.Finished(err)
		}
		return g.via.Start(c)
	}
	if c.Reduce == comm.Tree && (c.Op == comm.AllReduce || c.Op == comm.ReduceScatter) {
		return g.startTree(c)
	}
	defer onThread()()
	if err := w.device.Err(); err != nil {
		w.Abort(err)
	}
	e := g.enter(c)
	if e.err == nil {
		e.err = g.enqueue(e, c)
	}
	if e.err != nil {
		w.Abort(e.err)
		e.err = w.Err() // the first failure
	}
	return e
}

func (g *group) enter(c *comm.Collective) *enqueued {
	g.world.mu.Lock()
	defer g.world.mu.Unlock()
	call := g.Call(c)
	call.Posted, call.Seq = time.Now(), g.next
	g.next++
	return &enqueued{group: g, call: &call, err: g.world.err}
}

// enqueue calls without the lock: a call may wait for peers, and be given up by
// watch meanwhile.
func (g *group) enqueue(e *enqueued, c *comm.Collective) error {
	s := g.world.streams
	if err := s.Enter(); err != nil {
		return err
	}
	ready, err := s.Mark(s.Ops())
	if err != nil {
		return err
	}
	if e.mark, err = g.behind(ready, e, c); err != nil {
		s.Drop(ready)
		return err
	}
	e.ready = ready
	g.world.mu.Lock()
	defer g.world.mu.Unlock()
	g.on.open = append(g.on.open, e)
	return nil
}

// behind makes the call on the communicator's stream, after ready; the mark is behind it.
func (g *group) behind(ready device.Mark, e *enqueued, c *comm.Collective) (device.Mark, error) {
	s := g.world.streams
	if err := s.Follow(g.on.stream, ready); err != nil {
		return nil, err
	}
	if err := g.call(c); err != nil {
		return nil, exitcode.Errorf(exitcode.CodeOf(err), "%s: %w", e.call, err)
	}
	return s.Mark(g.on.stream)
}

// Tell has begun and over called when World.watch sees these, at once where it already has.
func (e *enqueued) Tell(begun, over func()) {
	if e.err != nil {
		return
	}
	mu := &e.group.world.telling
	mu.Lock()
	defer mu.Unlock()
	if e.onBegun, e.onOver = begun, over; e.begun {
		begun()
	}
	if e.over {
		over()
	}
}

// tell sets note, then calls the function that Tell has set for it.
func (e *enqueued) tell(note *bool, f *func()) {
	mu := &e.group.world.telling
	mu.Lock()
	defer mu.Unlock()
	if *note = true; *f != nil {
		(*f)()
	}
}

// Wait orders the device's ops behind the collective; the host continues.
func (e *enqueued) Wait() error {
	if e.err != nil {
		return e.err
	}
	defer onThread()()
	w := e.group.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || e.done {
		return w.err
	}
	if err := w.streams.Enter(); err != nil {
		return err
	}
	return w.streams.Follow(w.streams.Ops(), e.mark)
}

var ops = map[comm.ReduceOp]nccl.Op{comm.Sum: nccl.Sum, comm.Max: nccl.Max}

// call makes NCCL's call; messages where it has none.
func (g *group) call(c *comm.Collective) error {
	if c.Reduce == comm.Tree {
		return exitcode.Errorf(exitcode.Internal, "internal error: the sum of %s must have the order of a tree, which neither NCCL nor point-to-point messages support; report this, and include the command line", c.Op)
	}
	switch c.Op {
	case comm.AllReduce:
		return g.on.nccl.AllReduce(c.In, ops[c.Reduce], g.on.stream)
	case comm.Reduce:
		return g.on.nccl.Reduce(c.In, ops[c.Reduce], c.Root, g.on.stream)
	case comm.Broadcast:
		return g.on.nccl.Broadcast(c.In, c.Root, g.on.stream)
	case comm.AllGather:
		return g.on.nccl.AllGather(c.Out, c.In, g.on.stream)
	case comm.ReduceScatter:
		return g.on.nccl.ReduceScatter(c.Out, c.In, ops[c.Reduce], g.on.stream)
	}
	return g.on.nccl.Batch(g.messages(c), g.on.stream)
}

// messages are what a collective comes to for this rank.
func (g *group) messages(c *comm.Collective) (batch []nccl.Transfer) {
	switch c.Op {
	case comm.Gather:
		batch = []nccl.Transfer{{Peer: c.Root, Send: true, T: c.In}}
		if g.Rank == c.Root {
			batch = append(batch, g.parts(c.Out, false)...)
		}
	case comm.Scatter:
		batch = []nccl.Transfer{{Peer: c.Root, T: c.Out}}
		if g.Rank == c.Root {
			batch = append(batch, g.parts(c.In, true)...)
		}
	default:
		for _, t := range c.Transfers {
			batch = append(batch, nccl.Transfer{Peer: t.Peer, Send: t.Send, T: t.T})
		}
	}
	return batch
}

// parts are a tensor's equal parts, one to or from each rank.
func (g *group) parts(t device.Tensor, send bool) (batch []nccl.Transfer) {
	flat := device.View(t.Data, t.DType, t.Len())
	n := t.Len() / int64(g.Size())
	for peer := range g.Size() {
		batch = append(batch, nccl.Transfer{Peer: peer, Send: send, T: flat.Slice(0, int64(peer)*n, n)})
	}
	return batch
}
