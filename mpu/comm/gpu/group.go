//go:build cgo && linux

package gpu

import (
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/device"
	"monotron/fault"
	"monotron/mpu/comm"
)

// group is a rank's engine on a communicator and a stream of its own.
type group struct {
	comm.Membership
	world  *World
	via    *comm.Group // the same ranks, over the host
	comm   *nccl.Comm
	stream device.Stream

	next int64       // number of the next collective
	open []*enqueued // not known to be done, oldest first
}

// enqueued is a collective on the group's stream.
type enqueued struct {
	group *group
	call  *comm.Call
	mark  device.Mark // behind it
	done  bool        // and the mark dropped
	err   error       // it could not be enqueued
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
		e.err = w.Err() // of what failed first
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
	defer s.Drop(ready)
	if err := s.Follow(g.stream, ready); err != nil {
		return err
	}
	if err := g.call(c); err != nil {
		return fault.Errorf(fault.CodeOf(err), "%s: %w", e.call, err)
	}
	if e.mark, err = s.Mark(g.stream); err != nil {
		return err
	}
	g.world.mu.Lock()
	defer g.world.mu.Unlock()
	g.open = append(g.open, e)
	return nil
}

// Wait orders the device's ops behind the collective; the host goes on.
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

// look drops what is done, with the lock held. A call that has taken too long, or
// a communicator in trouble, is an error.
func (g *group) look() error {
	for len(g.open) > 0 {
		first := g.open[0]
		reached, err := g.world.streams.Reached(first.mark)
		if err != nil {
			return err
		}
		if !reached {
			break
		}
		g.world.streams.Drop(first.mark)
		first.done, first.call.Ended = true, time.Now()
		g.open = g.open[1:]
	}
	if err := g.comm.Err(); err != nil {
		return fault.Errorf(fault.CodeOf(err), "%s: %w", &g.Membership, err)
	}
	if len(g.open) > 0 && time.Since(g.open[0].call.Posted) > g.world.limit {
		return fault.Errorf(fault.Internal, "%s was called %v ago and is not done: a rank has not come, or the GPUs' network is stuck",
			g.open[0].call, time.Since(g.open[0].call.Posted).Round(time.Second))
	}
	return nil
}

var ops = map[comm.ReduceOp]nccl.Op{comm.Sum: nccl.Sum, comm.Max: nccl.Max}

// call makes NCCL's call; messages where it has none.
func (g *group) call(c *comm.Collective) error {
	switch c.Op {
	case comm.AllReduce:
		return g.comm.AllReduce(c.In, ops[c.Reduce], g.stream)
	case comm.Reduce:
		return g.comm.Reduce(c.In, ops[c.Reduce], c.Root, g.stream)
	case comm.Broadcast:
		return g.comm.Broadcast(c.In, c.Root, g.stream)
	case comm.AllGather:
		return g.comm.AllGather(c.Out, c.In, g.stream)
	case comm.ReduceScatter:
		return g.comm.ReduceScatter(c.Out, c.In, ops[c.Reduce], g.stream)
	}
	return g.comm.Batch(g.messages(c), g.stream)
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
