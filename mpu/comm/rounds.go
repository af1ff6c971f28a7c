package comm

import (
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
)

// member is a rank's Group in a World.
type member struct {
	world   *World
	meeting *meeting
	place   int // in the group
	rank    int // in the world
	device  *device.Device
}

func (g *member) Name() string { return g.meeting.name }
func (g *member) Rank() int    { return g.place }
func (g *member) Size() int    { return len(g.meeting.members) }

// round is one collective of a group: the calls of its members, by place.
type round struct {
	task
	calls []*Call
	parts []part
	here  int
}

// part is what one member brings.
type part struct {
	in, out   device.Tensor
	ins, outs []device.Tensor
}

// The names of collectives in ledgers and errors.
const (
	opAllReduce     = "all_reduce"
	opReduce        = "reduce"
	opBroadcast     = "broadcast"
	opAllGather     = "all_gather"
	opGather        = "gather"
	opScatter       = "scatter"
	opReduceScatter = "reduce_scatter"
	opAllToAll      = "all_to_all"
	opBarrier       = "barrier"
)

func (g *member) AllReduce(t device.Tensor, op ReduceOp) Work {
	g.check(opAllReduce, summable(t), t)
	return g.post(Call{Op: opAllReduce, Reduce: op.String(), Root: -1}, t, part{in: t, out: t})
}

func (g *member) Reduce(t device.Tensor, op ReduceOp, root int) Work {
	g.check(opReduce, summable(t), t)
	return g.post(Call{Op: opReduce, Reduce: op.String(), Root: g.member(root)}, t, part{in: t, out: t})
}

func (g *member) Broadcast(t device.Tensor, root int) Work {
	g.check(opBroadcast, whole(t), t)
	return g.post(Call{Op: opBroadcast, Root: g.member(root)}, t, part{in: t, out: t})
}

func (g *member) AllGather(out, in device.Tensor) Work {
	g.check(opAllGather, g.times(out, in), out, in)
	return g.post(Call{Op: opAllGather, Root: -1}, in, part{in: in, out: out})
}

func (g *member) Gather(out, in device.Tensor, root int) Work {
	g.check(opGather, whole(in) && (g.place != root || g.times(out, in)), out, in)
	return g.post(Call{Op: opGather, Root: g.member(root)}, in, part{in: in, out: out})
}

func (g *member) Scatter(out, in device.Tensor, root int) Work {
	g.check(opScatter, whole(out) && (g.place != root || g.times(in, out)), out, in)
	return g.post(Call{Op: opScatter, Root: g.member(root)}, out, part{in: in, out: out})
}

func (g *member) ReduceScatter(out, in device.Tensor) Work {
	g.check(opReduceScatter, g.times(in, out) && summable(in), out, in)
	return g.post(Call{Op: opReduceScatter, Reduce: Sum.String(), Root: -1}, out, part{in: in, out: out})
}

func (g *member) AllToAllV(recv, send []device.Tensor) Work {
	if len(recv) != g.Size() || len(send) != g.Size() {
		panic(fmt.Sprintf("comm: %s in a group of %d with %d to receive and %d to send", opAllToAll, g.Size(), len(recv), len(send)))
	}
	for i := range recv {
		g.check(opAllToAll, whole(recv[i]) && whole(send[i]), recv[i], send[i])
	}
	return g.post(Call{Op: opAllToAll, Root: -1}, device.Tensor{}, part{ins: slices.Clone(send), outs: slices.Clone(recv)})
}

func (g *member) Barrier() error {
	return g.post(Call{Op: opBarrier, Root: -1}, device.Tensor{}, part{}).Wait()
}

// member is the rank of the world that has a place in the group.
func (g *member) member(place int) int { return g.meeting.members[place] }

func (g *member) check(op string, ok bool, ts ...device.Tensor) { insist(g, op, ok, ts...) }

// insist panics where a rank's tensors cannot be meant.
func insist(g Group, op string, ok bool, ts ...device.Tensor) {
	if !ok {
		panic(fmt.Sprintf("comm: %s in group %s of %d called with %v", op, g.Name(), g.Size(), ts))
	}
}

func whole(t device.Tensor) bool { return t.Given() && t.Contiguous() }

func summable(t device.Tensor) bool { return whole(t) && t.DType != device.U16 }

// times tells whether long is Size() times as long as short.
func (g *member) times(long, short device.Tensor) bool { return times(g, long, short) }

func times(g Group, long, short device.Tensor) bool {
	return whole(long) && whole(short) && long.DType == short.DType && long.Len() == short.Len()*int64(g.Size())
}

// post enters the group's next collective. of is what each rank brings.
func (g *member) post(c Call, of device.Tensor, p part) Work {
	w, m := g.world, g.meeting
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := g.ready(); err != nil {
		return finished{err}
	}
	if of.Given() {
		c.Count, c.DType = of.Len(), of.DType
	}
	c.Seq = m.next[g.place]
	m.next[g.place]++
	g.record(&c)
	r := m.round(c.Seq)
	if first := r.first(); first >= 0 && !r.calls[first].agrees(&c) {
		w.fail(fault.Errorf(fault.Internal, "the ranks of group %s %v do not call the same: #%d is %s on rank %d, but %s on rank %d",
			m.name, m.members, c.Seq, r.calls[first].what(), m.members[first], c.what(), g.rank))
		return finished{w.err}
	}
	r.calls[g.place], r.parts[g.place] = &c, p
	if r.here++; r.here < g.Size() {
		return pending{w, g.rank, &r.task}
	}
	delete(m.rounds, c.Seq)
	g.carryRound(r)
	return finished{r.err}
}

// ready tells why the rank cannot communicate; with the lock held.
func (g *member) ready() error {
	if err := g.device.Err(); err != nil {
		g.world.fail(fmt.Errorf("rank %d: %w", g.rank, err))
	}
	return g.world.err
}

func (g *member) record(c *Call) {
	c.Group, c.Members, c.Posted = g.meeting.name, g.meeting.members, time.Now()
	g.world.ranks[g.rank].ledger.add(c)
}

// round is the collective with a number; made by whoever is first there.
func (m *meeting) round(seq int64) *round {
	r := m.rounds[seq]
	if r == nil {
		r = &round{task: task{done: make(chan struct{})}, calls: make([]*Call, len(m.members)), parts: make([]part, len(m.members))}
		r.lacks = func() string { return r.lacking(m) }
		m.rounds[seq] = r
	}
	return r
}

// first is the lowest place that has called; -1: none.
func (r *round) first() int { return slices.IndexFunc(r.calls, func(c *Call) bool { return c != nil }) }

func (r *round) lacking(m *meeting) string {
	var missing []int
	for i, c := range r.calls {
		if c == nil {
			missing = append(missing, m.members[i])
		}
	}
	return fmt.Sprintf("%s, without ranks %v", r.calls[r.first()], missing)
}

// carryRound moves the bytes of a round that everybody has entered. The lock is
// held before and after, not meanwhile.
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
	carry(w.pool, moves)
	w.mu.Lock()
	now := time.Now()
	for _, c := range r.calls {
		c.Ended = now
	}
	r.end(nil)
	w.finish()
}

// moves is what the round does, as stretches that are summed and copied.
func (r *round) moves(m *meeting) ([]move, error) {
	c := r.calls[0]
	n := c.Count
	var ins, outs []device.Tensor
	for _, p := range r.parts {
		ins, outs = append(ins, p.in), append(outs, p.out)
	}
	root := slices.Index(m.members, c.Root)
	var moves []move
	switch c.Op {
	case opAllReduce:
		moves = []move{combine(c, outs, ins)}
	case opReduce:
		moves = []move{combine(c, outs[root:root+1], ins)}
	case opBroadcast:
		moves = []move{combine(c, outs, ins[root:root+1])}
	case opReduceScatter:
		for i := range outs {
			moves = append(moves, combine(c, outs[i:i+1], stretchOf(ins, int64(i)*n, n)))
		}
	case opAllGather:
		for i := range ins {
			moves = append(moves, combine(c, stretchOf(outs, int64(i)*n, n), ins[i:i+1]))
		}
	case opGather:
		for i := range ins {
			moves = append(moves, combine(c, stretchOf(outs[root:root+1], int64(i)*n, n), ins[i:i+1]))
		}
	case opScatter:
		for i := range outs {
			moves = append(moves, combine(c, outs[i:i+1], stretchOf(ins[root:root+1], int64(i)*n, n)))
		}
	case opAllToAll:
		return r.crossings(m)
	}
	return moves, nil
}

// crossings are the copies of an all-to-all; sizes that differ at the two ends
// are the ranks' mistake.
func (r *round) crossings(m *meeting) ([]move, error) {
	var moves []move
	for from, p := range r.parts {
		for to, in := range p.ins {
			out := r.parts[to].outs[from]
			if out.Len() != in.Len() || out.DType != in.DType {
				return nil, fault.Errorf(fault.Internal, "%s: rank %d sends %d %s to rank %d, which expects %d %s",
					r.calls[0], m.members[from], in.Len(), in.DType, m.members[to], out.Len(), out.DType)
			}
			moves = append(moves, combine(&Call{Count: in.Len(), DType: in.DType}, []device.Tensor{out}, []device.Tensor{in}))
		}
	}
	return moves, nil
}

// stretchOf cuts the same stretch out of each tensor.
func stretchOf(ts []device.Tensor, from, n int64) []device.Tensor {
	out := make([]device.Tensor, len(ts))
	for i, t := range ts {
		out[i] = t.Reshape(t.Len()).Slice(0, from, n)
	}
	return out
}
