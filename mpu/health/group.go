package health

import "monotron/mpu/comm"

// Group records what a rank calls in one of its groups: an engine over the group's.
type Group struct {
	engine   comm.Engine
	recorder *Recorder
	named    Named
	name     uint32 // in the page
	members  []int
	aside    bool // used by a goroutine other than the rank's own

	entered, exchanges int64
	sent, received     map[int32]uint32 // messages by rank of the world
}

// Meddler is put before what records: it may change the rank's calls, or make others.
type Meddler func(recorded comm.Engine) comm.Engine

// Wrap records what the rank calls in g; aside: it is called from a goroutine other than
// the rank's own. A group of one has nothing to wait for and is left as it is.
func (r *Recorder) Wrap(g *comm.Group, aside bool) *comm.Group {
	if r == nil || g.Size() == 1 {
		return g
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Group{recorder: r, named: Named{g.Name(), ranges(g.Members())}, members: g.Members(), aside: aside, sent: map[int32]uint32{}, received: map[int32]uint32{}}
	w.name = r.intern(w.named.Key())
	r.groups = append(r.groups, w)
	return g.Over(func(e comm.Engine) comm.Engine {
		w.engine = e
		if r.meddler != nil {
			return r.meddler(w)
		}
		return w
	})
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

// work is a recorded collective under way.
type work struct {
	group  *Group
	number int64
	inner  comm.Work
	behind bool // the device reports when it is over
}

func (w work) Wait() error {
	r := w.group.recorder
	if !w.group.aside {
		r.sleep(w.number)
		defer r.wake()
	}
	err := w.inner.Wait()
	if err == nil && !w.behind {
		r.left(w.number)
	}
	return err
}

// Start records a collective, then begins it.
func (g *Group) Start(c *comm.Collective) comm.Work {
	s := slot{Op: uint32(c.Op), Reduce: uint32(c.Reduce), Root: -1}
	if c.Op.Rooted() {
		s.Root = int32(g.members[c.Root])
	}
	if t := c.Share(); t.Given() {
		s.Count, s.DType = t.Len(), int32(t.DType)
	}
	var messages []comm.Transfer
	if c.Op == comm.Exchange {
		messages = c.Transfers
	}
	for _, t := range messages {
		s.Count, s.DType = s.Count+t.T.Len(), int32(t.T.DType)
	}
	return g.recorder.start(g, g.recorder.enter(g, s, messages), c)
}

// number counts the messages of an exchange; the caller holds the recorder's lock.
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
