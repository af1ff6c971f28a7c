package watch

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Tensor is csrc/device's.
type Tensor = device.Tensor

// Group is a rank's group whose calls are recorded.
type Group struct {
	comm.Group
	recorder *Recorder
	label    string
	name     uint32 // in the page
	members  []int
	aside    bool // used by a goroutine beside the rank's own

	entered, exchanges int64
	sent, received     map[int32]uint32 // messages by rank of the world
}

// Meddler changes what a rank calls: it may call something else first, and it may
// give another tensor.
type Meddler func(g *Group, op string, x Tensor) Tensor

// Wrap records what the rank calls in g, whose members are ranks of the world; aside:
// it is called from a goroutine beside the rank's own. A group of one has nothing to
// wait for and is left as it is.
func (r *Recorder) Wrap(g comm.Group, members []int, aside bool) comm.Group {
	if r == nil || g.Size() == 1 {
		return g
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Group{Group: g, recorder: r, label: g.Name(), members: members, aside: aside, sent: map[int32]uint32{}, received: map[int32]uint32{}}
	w.name = r.intern(g.Name() + " " + ranges(members))
	r.groups = append(r.groups, w)
	return w
}

// Groups are all that the recorder has wrapped.
func (r *Recorder) Groups() []*Group {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups
}

// Members are the group's ranks of the world.
func (g *Group) Members() []int { return g.members }

// work is a recorded collective under way.
type work struct {
	group  *Group
	number int64
	inner  comm.Work
}

func (w work) Wait() error {
	r := w.group.recorder
	if !w.group.aside {
		r.sleep(w.number)
		defer r.wake()
	}
	err := w.inner.Wait()
	if err == nil {
		r.left(w.number)
	}
	return err
}

// call records a collective of x and gives what to wait for it with.
func (g *Group) call(op, reduce string, root int, x Tensor) int64 {
	s := slot{Op: opNumber(op), Reduce: reduceNumber(reduce), Root: -1}
	if x.Given() {
		s.Count, s.DType = x.Len(), int32(x.DType)
	}
	if root >= 0 {
		s.Root = int32(g.members[root])
	}
	for i := range s.Moves {
		s.Moves[i].Peer = -1
	}
	return g.recorder.enter(g, s, nil, 2)
}

func (g *Group) meddle(op string, x Tensor) Tensor {
	if g.recorder.meddler == nil {
		return x
	}
	return g.recorder.meddler(g, op, x)
}

func (g *Group) AllReduce(t Tensor, op comm.ReduceOp) comm.Work {
	t = g.meddle("all_reduce", t)
	n := g.call("all_reduce", op.String(), -1, t)
	return work{g, n, g.Group.AllReduce(t, op)}
}

func (g *Group) Reduce(t Tensor, op comm.ReduceOp, root int) comm.Work {
	t = g.meddle("reduce", t)
	n := g.call("reduce", op.String(), root, t)
	return work{g, n, g.Group.Reduce(t, op, root)}
}

func (g *Group) Broadcast(t Tensor, root int) comm.Work {
	t = g.meddle("broadcast", t)
	n := g.call("broadcast", "", root, t)
	return work{g, n, g.Group.Broadcast(t, root)}
}

func (g *Group) AllGather(out, in Tensor) comm.Work {
	g.meddle("", in)
	n := g.call("all_gather", "", -1, in)
	return work{g, n, g.Group.AllGather(out, in)}
}

func (g *Group) Gather(out, in Tensor, root int) comm.Work {
	g.meddle("", in)
	n := g.call("gather", "", root, in)
	return work{g, n, g.Group.Gather(out, in, root)}
}

func (g *Group) Scatter(out, in Tensor, root int) comm.Work {
	g.meddle("", out)
	n := g.call("scatter", "", root, out)
	return work{g, n, g.Group.Scatter(out, in, root)}
}

func (g *Group) ReduceScatter(out, in Tensor) comm.Work {
	g.meddle("", out)
	n := g.call("reduce_scatter", "sum", -1, out)
	return work{g, n, g.Group.ReduceScatter(out, in)}
}

func (g *Group) AllToAllV(recv, send []Tensor) comm.Work {
	g.meddle("", Tensor{})
	n := g.call("all_to_all", "", -1, Tensor{})
	return work{g, n, g.Group.AllToAllV(recv, send)}
}

func (g *Group) Barrier() error {
	g.meddle("", Tensor{})
	n := g.call("barrier", "", -1, Tensor{})
	if !g.aside {
		g.recorder.sleep(n)
		defer g.recorder.wake()
	}
	err := g.Group.Barrier()
	if err == nil {
		g.recorder.left(n)
	}
	return err
}

func (g *Group) Exchange(transfers []comm.Transfer) comm.Work {
	g.meddle("", Tensor{})
	s := slot{Op: opNumber("exchange"), Root: -1}
	for _, t := range transfers {
		s.Count, s.DType = s.Count+t.T.Len(), int32(t.T.DType)
	}
	n := g.recorder.enter(g, s, transfers, 1)
	return work{g, n, g.Group.Exchange(transfers)}
}

// number counts the messages of an exchange; with the recorder's lock held.
func (g *Group) number(transfers []comm.Transfer) (list [slotMoves]move) {
	for i, t := range transfers {
		peer := int32(g.members[t.Peer])
		m := move{peer, g.received[peer]}
		if t.Send {
			m.Number = g.sent[peer] | sendBit
			g.sent[peer]++
		} else {
			g.received[peer]++
		}
		if i < slotMoves {
			list[i] = m
		}
	}
	for i := len(transfers); i < slotMoves; i++ {
		list[i].Peer = -1
	}
	return list
}
