//go:build cgo && linux

package comm

import (
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/device"
	"monotron/fault"
)

// ncclGroup is a rank's Group on a communicator and a stream of its own.
type ncclGroup struct {
	world   *NCCL
	via     Group // the same ranks, over the host
	comm    *nccl.Comm
	stream  device.Stream
	members []int

	next int64       // number of the next collective
	open []*enqueued // not known to be done, oldest first
}

// enqueued is a collective on the group's stream.
type enqueued struct {
	group *ncclGroup
	call  *Call
	mark  device.Mark // behind it
	done  bool        // and the mark dropped
	err   error       // it could not be enqueued
}

func (g *ncclGroup) Name() string { return g.via.Name() }
func (g *ncclGroup) Rank() int    { return g.via.Rank() }
func (g *ncclGroup) Size() int    { return g.via.Size() }

// start enqueues a collective behind the ops so far. It does not wait for peers.
func (g *ncclGroup) start(c Call, of device.Tensor, call func(stream device.Stream) error) Work {
	defer onThread()()
	w := g.world
	if err := w.device.Err(); err != nil {
		w.Abort(err)
	}
	e := g.enter(&c, of)
	if e.err == nil {
		e.err = g.enqueue(e, call)
	}
	if e.err != nil {
		w.Abort(e.err)
		e.err = w.Err() // of what failed first
	}
	return e
}

func (g *ncclGroup) enter(c *Call, of device.Tensor) *enqueued {
	g.world.mu.Lock()
	defer g.world.mu.Unlock()
	if of.Given() {
		c.Count, c.DType = of.Len(), of.DType
	}
	c.Group, c.Members, c.Posted, c.Seq = g.Name(), g.members, time.Now(), g.next
	g.next++
	return &enqueued{group: g, call: c, err: g.world.err}
}

// enqueue calls without the lock: a call may wait for peers, and be given up by
// watch meanwhile.
func (g *ncclGroup) enqueue(e *enqueued, call func(stream device.Stream) error) error {
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
	if err := call(g.stream); err != nil {
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
func (g *ncclGroup) look() error {
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
		return fault.Errorf(fault.CodeOf(err), "group %s of ranks %v: %w", g.Name(), g.members, err)
	}
	if len(g.open) > 0 && time.Since(g.open[0].call.Posted) > g.world.limit {
		return fault.Errorf(fault.Internal, "%s was called %v ago and is not done: a rank has not come, or the GPUs' network is stuck",
			g.open[0].call, time.Since(g.open[0].call.Posted).Round(time.Second))
	}
	return nil
}

var ncclOps = [...]nccl.Op{Sum: nccl.Sum, Max: nccl.Max}

func (g *ncclGroup) AllReduce(t device.Tensor, op ReduceOp) Work {
	return g.start(Call{Op: "all_reduce", Reduce: op.String(), Root: -1}, t, func(s device.Stream) error {
		return g.comm.AllReduce(t, ncclOps[op], s)
	})
}

func (g *ncclGroup) Reduce(t device.Tensor, op ReduceOp, root int) Work {
	return g.start(Call{Op: "reduce", Reduce: op.String(), Root: g.members[root]}, t, func(s device.Stream) error {
		return g.comm.Reduce(t, ncclOps[op], root, s)
	})
}

func (g *ncclGroup) Broadcast(t device.Tensor, root int) Work {
	return g.start(Call{Op: "broadcast", Root: g.members[root]}, t, func(s device.Stream) error {
		return g.comm.Broadcast(t, root, s)
	})
}

func (g *ncclGroup) AllGather(out, in device.Tensor) Work {
	return g.start(Call{Op: "all_gather", Root: -1}, in, func(s device.Stream) error {
		return g.comm.AllGather(out, in, s)
	})
}

func (g *ncclGroup) ReduceScatter(out, in device.Tensor) Work {
	return g.start(Call{Op: "reduce_scatter", Reduce: Sum.String(), Root: -1}, out, func(s device.Stream) error {
		return g.comm.ReduceScatter(out, in, nccl.Sum, s)
	})
}

// Gather and Scatter are messages to and from root: NCCL has no calls for them.
func (g *ncclGroup) Gather(out, in device.Tensor, root int) Work {
	return g.start(Call{Op: "gather", Root: g.members[root]}, in, func(s device.Stream) error {
		batch := []nccl.Transfer{{Peer: root, Send: true, T: in}}
		if g.Rank() == root {
			batch = append(batch, g.parts(out, false)...)
		}
		return g.comm.Batch(batch, s)
	})
}

func (g *ncclGroup) Scatter(out, in device.Tensor, root int) Work {
	return g.start(Call{Op: "scatter", Root: g.members[root]}, out, func(s device.Stream) error {
		batch := []nccl.Transfer{{Peer: root, T: out}}
		if g.Rank() == root {
			batch = append(batch, g.parts(in, true)...)
		}
		return g.comm.Batch(batch, s)
	})
}

// parts are a tensor's equal parts, one to or from each rank.
func (g *ncclGroup) parts(t device.Tensor, send bool) (batch []nccl.Transfer) {
	flat := device.View(t.Data, t.DType, t.Len())
	n := t.Len() / int64(g.Size())
	for peer := range g.Size() {
		batch = append(batch, nccl.Transfer{Peer: peer, Send: send, T: flat.Slice(0, int64(peer)*n, n)})
	}
	return batch
}

func (g *ncclGroup) AllToAllV(recv, send []device.Tensor) Work {
	return g.start(Call{Op: "all_to_all", Root: -1}, device.Tensor{}, func(s device.Stream) error {
		var batch []nccl.Transfer
		for peer := range g.Size() {
			batch = append(batch, nccl.Transfer{Peer: peer, Send: true, T: send[peer]}, nccl.Transfer{Peer: peer, T: recv[peer]})
		}
		return g.comm.Batch(batch, s)
	})
}

func (g *ncclGroup) Exchange(transfers []Transfer) Work {
	return g.start(Call{Op: "exchange", Root: -1}, device.Tensor{}, func(s device.Stream) error {
		var batch []nccl.Transfer
		for _, t := range transfers {
			batch = append(batch, nccl.Transfer{Peer: t.Peer, Send: t.Send, T: t.T})
		}
		return g.comm.Batch(batch, s)
	})
}

// Barrier waits on the host, over the host.
func (g *ncclGroup) Barrier() error {
	if err := g.world.Err(); err != nil {
		return err
	}
	return g.via.Barrier()
}
