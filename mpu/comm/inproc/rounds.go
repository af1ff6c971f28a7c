package inproc

import (
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
	"monotron/mpu/comm/reduce"
)

// member is a rank's engine in a World.
type member struct {
	comm.Membership
	world   *World
	meeting *meeting
	device  *device.Device
}

// round is one collective of a group: what its members call, by position.
type round struct {
	task
	calls []*comm.Call
	parts []*comm.Collective
	here  int
}

// Start enters the group's next collective.
func (g *member) Start(c *comm.Collective) comm.Work {
	if c.Op == comm.Exchange {
		return g.exchange(c.Transfers)
	}
	w, m := g.world, g.meeting
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := g.ready(); err != nil {
		return comm.Finished(err)
	}
	call := g.Call(c)
	call.Seq = m.next[g.Rank]
	m.next[g.Rank]++
	g.record(&call)
	r := m.round(call.Seq)
	if first := r.first(); first >= 0 && !r.calls[first].Agrees(&call) {
		w.fail(comm.Differ(r.calls[first], &call))
		return comm.Finished(w.err)
	}
	r.calls[g.Rank], r.parts[g.Rank] = &call, c
	if r.here++; r.here < g.Size() {
		return pending{w, g.number(), &r.task}
	}
	delete(m.rounds, call.Seq)
	g.carryRound(r)
	return comm.Finished(r.err)
}

// ready returns why the rank cannot communicate; the caller holds the lock.
func (g *member) ready() error {
	if err := g.device.Err(); err != nil {
		g.world.fail(failure.Of(g.number(), err).Err())
	}
	return g.world.err
}

// number is the rank's in the world.
func (g *member) number() int { return g.Members[g.Rank] }

func (g *member) record(c *comm.Call) {
	c.Posted = time.Now()
	g.world.ranks[g.number()].newest = c
}

// round is the collective with a number; made by whoever is first there.
func (m *meeting) round(seq int64) *round {
	r := m.rounds[seq]
	if r == nil {
		r = &round{task: task{done: make(chan struct{})}, calls: make([]*comm.Call, len(m.members)), parts: make([]*comm.Collective, len(m.members))}
		r.lacks = func() string { return r.lacking(m) }
		m.rounds[seq] = r
	}
	return r
}

// first is the lowest position that has called; -1: none.
func (r *round) first() int {
	return slices.IndexFunc(r.calls, func(c *comm.Call) bool { return c != nil })
}

func (r *round) lacking(m *meeting) string {
	var missing []int
	for i, c := range r.calls {
		if c == nil {
			missing = append(missing, m.members[i])
		}
	}
	return fmt.Sprintf("%s, which ranks %v have not entered", r.calls[r.first()], missing)
}

// carryRound moves the bytes of a round that everybody has entered. The caller
// holds the lock, which is released meanwhile.
func (g *member) carryRound(r *round) {
	w := g.world
	moves, err := r.moves(g.meeting)
	if err != nil {
		w.fail(err)
		r.end(err)
		return
	}
	w.begin()
	w.mu.Unlock()
	reduce.Carry(w.pool, moves)
	w.mu.Lock()
	now := time.Now()
	for _, c := range r.calls {
		c.Ended = now
	}
	r.end(nil)
	w.finish()
}

// moves is what the round does, as stretches that are summed and copied.
func (r *round) moves(m *meeting) ([]reduce.Move, error) {
	c := r.calls[0]
	n := c.Count
	// What every rank gave, and where it wants the result.
	var ins, outs []device.Tensor
	for _, p := range r.parts {
		ins, outs = append(ins, p.In), append(outs, p.Out)
	}
	root := r.parts[0].Root
	var moves []reduce.Move
	// Each operation as stretches [count] from ranks to ranks.
	switch c.Op {
	case comm.AllReduce:
		moves = []reduce.Move{reduce.Between(n, c.DType, c.Reduce, outs, ins)}
	case comm.Reduce:
		moves = []reduce.Move{reduce.Between(n, c.DType, c.Reduce, outs[root:root+1], ins)}
	case comm.Broadcast:
		moves = []reduce.Move{reduce.Between(n, c.DType, c.Reduce, outs, ins[root:root+1])}
	case comm.ReduceScatter:
		for i := range outs {
			moves = append(moves, reduce.Between(n, c.DType, c.Reduce, outs[i:i+1], stretchOf(ins, int64(i)*n, n)))
		}
	case comm.AllGather:
		for i := range ins {
			moves = append(moves, reduce.Between(n, c.DType, c.Reduce, stretchOf(outs, int64(i)*n, n), ins[i:i+1]))
		}
	case comm.Gather:
		for i := range ins {
			moves = append(moves, reduce.Between(n, c.DType, c.Reduce, stretchOf(outs[root:root+1], int64(i)*n, n), ins[i:i+1]))
		}
	case comm.Scatter:
		for i := range outs {
			moves = append(moves, reduce.Between(n, c.DType, c.Reduce, outs[i:i+1], stretchOf(ins[root:root+1], int64(i)*n, n)))
		}
	case comm.AllToAll:
		return r.crossings(m)
	}
	return moves, nil
}

// crossings are the copies of an all-to-all; sizes that differ at the two ends
// are the ranks' mistake.
func (r *round) crossings(m *meeting) ([]reduce.Move, error) {
	var moves []reduce.Move
	for from, p := range r.parts {
		for to, theirs := range r.parts {
			in, out := p.Transfers[2*to].T, theirs.Transfers[2*from+1].T
			sent, received := r.crossing(from, m.members[to], in), r.crossing(to, m.members[from], out)
			if sent.Count != received.Count || sent.DType != received.DType {
				return nil, comm.Differ(sent, received)
			}
			moves = append(moves, reduce.Between(sent.Count, sent.DType, 0, []device.Tensor{out}, []device.Tensor{in}))
		}
	}
	return moves, nil
}

// crossing is what a position has to do with one peer in an all-to-all.
func (r *round) crossing(own, peer int, t device.Tensor) *comm.Call {
	c := *r.calls[own]
	c.Root, c.Count, c.DType = peer, t.Len(), t.DType
	return &c
}

// stretchOf cuts the same stretch out of each tensor.
func stretchOf(ts []device.Tensor, from, n int64) []device.Tensor {
	out := make([]device.Tensor, len(ts))
	for i, t := range ts {
		out[i] = t.Reshape(t.Len()).Slice(0, from, n)
	}
	return out
}
