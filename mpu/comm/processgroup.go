package comm

import (
	"fmt"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/fault"
)

// processGroup is a rank's Group in a run of processes.
type processGroup struct {
	world   *Process
	name    string
	members []int // ranks of the world
	place   int
	id      uint64 // of the name and the members
	piece   int    // bytes of an all-reduce that are carried as one
	device  *device.Device

	next           int64             // number of the next collective
	sent, received []int64           // messages to and from each member
	open           map[*transit]bool // calls under way
	own            *ownSums          // Gloo's; nil: none made yet
}

func (g *processGroup) Name() string { return g.name }
func (g *processGroup) Rank() int    { return g.place }
func (g *processGroup) Size() int    { return len(g.members) }

// small is how many bytes everybody sends to everybody, rather than each rank
// summing its share: fewer messages one after another.
const small = 32 << 10

// start enters the group's next collective: plan says, with the lock held, what
// goes and what comes.
func (g *processGroup) start(c Call, of device.Tensor, plan func(t *transit, n int64)) Work {
	p := g.world
	if err := g.device.Err(); err != nil {
		p.Abort(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return finished{p.err}
	}
	if of.Given() {
		c.Count, c.DType = of.Len(), of.DType
	}
	if c.Op != "exchange" {
		c.Seq = g.next
		g.next++
	}
	c.Group, c.Members, c.Posted = g.name, g.members, time.Now()
	t := &transit{group: g, call: &c, done: make(chan struct{})}
	g.open[t] = true
	t.left[0] = 1 // until all is posted
	plan(t, c.Count)
	t.left[0]--
	t.advance()
	return t
}

// brings sends bytes of the call's first stage to a member.
func (t *transit) brings(place int, data []byte) {
	t.send(0, place, t.call.Seq, partBrought, t.call.Count, t.call.DType, data)
}

// takes expects bytes of the call's first stage from a member.
func (t *transit) takes(place int, dst []byte) { t.expect(0, place, t.call.Seq, partBrought, dst) }

// others are the places of the group's other members, the next one first, so
// that not all send to the same.
func (g *processGroup) others() (places []int) {
	for i := 1; i < g.Size(); i++ {
		places = append(places, (g.place+i)%g.Size())
	}
	return places
}

// share is the part of n elements that a place sums.
func (g *processGroup) share(place int, n int64) (from, to int64) {
	each := (n + int64(g.Size()) - 1) / int64(g.Size())
	return min(n, int64(place)*each), min(n, int64(place+1)*each)
}

// summed expects everybody's n elements, and sets them, with our own, added in
// order, at `to`. Between two ranks they are added as they come; then nothing may
// send `to` before.
func (t *transit) summed(own []byte, to []byte, then func()) {
	g, c := t.group, t.call
	if g.Size() == 2 && len(own) > small {
		t.expectFolded(0, 1-g.place, c.Seq, partBrought, to, g.folder(c, own, to))
	} else {
		t.gathered(own, to)
	}
	add := t.sum
	if add == nil && then == nil {
		return
	}
	t.sum = func() {
		if add != nil {
			add()
		}
		if then != nil {
			g.world.mu.Lock()
			defer g.world.mu.Unlock()
			if g.world.err == nil {
				then()
			}
		}
	}
}

// gathered keeps what comes until all is there, then sums it.
func (t *transit) gathered(own, to []byte) {
	g, c := t.group, t.call
	from := make([][]byte, g.Size())
	from[g.place] = own
	for _, place := range g.others() {
		from[place] = staging(int64(len(own)))
		t.takes(place, from[place])
	}
	if len(own) == 0 {
		return
	}
	t.sum = func() {
		m := move{n: int64(len(own)) / c.DType.Size(), dtype: c.DType, reduce: c.Reduce, to: []unsafe.Pointer{unsafe.Pointer(&to[0])}}
		for _, f := range from {
			m.from = append(m.from, unsafe.Pointer(&f[0]))
		}
		carry(g.world.pool, []move{m})
	}
}

// folder combines a stretch of the other rank's bytes with our own, lower rank first.
func (g *processGroup) folder(c *Call, own, to []byte) func(at int64, theirs []byte) {
	return func(at int64, theirs []byte) {
		m := move{n: int64(len(theirs)) / c.DType.Size(), dtype: c.DType, reduce: c.Reduce, to: []unsafe.Pointer{unsafe.Pointer(&to[at])},
			from: []unsafe.Pointer{unsafe.Pointer(&own[at]), unsafe.Pointer(&theirs[0])}}
		if g.place == 1 {
			m.from[0], m.from[1] = m.from[1], m.from[0]
		}
		m.pair()
	}
}

// A longer all-reduce is carried in pieces: on one host they stay in the cache from
// rank to rank; between hosts each costs Gloo a question and an answer.
const (
	pieceHere   = 2 << 20
	pieceAcross = 16 << 20
)

// pieceOf is the same on all members.
func (p *Process) pieceOf(members []int) int {
	all := p.session.Members()
	for _, m := range members {
		if all[m].Host != all[members[0]].Host || !p.links.roads.allows(roadShared) {
			return pieceAcross
		}
	}
	return pieceHere
}

func (g *processGroup) AllReduce(x device.Tensor, op ReduceOp) Work {
	insist(g, opAllReduce, summable(x), x)
	return g.start(Call{Op: opAllReduce, Reduce: op.String(), Root: -1}, x, func(t *transit, _ int64) {
		all := bytesOf(x)
		switch {
		case g.world.fast && g.glooSums(x.DType):
			t.fastReduce(x, op)
		case len(all) <= small:
			t.gathered(all, all)
			for _, place := range g.others() {
				t.brings(place, all)
			}
		case len(all) <= g.piece:
			t.reduceShares(all)
		default:
			t.cut((len(all)+g.piece-1)/g.piece, func(piece *transit, i int) {
				piece.reduceShares(all[i*g.piece : min(len(all), (i+1)*g.piece)])
			})
		}
	})
}

// reduceShares has every rank sum its share of the elements, then gives it to all.
func (t *transit) reduceShares(all []byte) {
	g, c := t.group, t.call
	size := c.DType.Size()
	n := int64(len(all)) / size
	part := func(place int) []byte {
		from, to := g.share(place, n)
		return all[from*size : to*size]
	}
	mine := part(g.place)
	t.summed(mine, mine, func() {
		for _, place := range g.others() {
			t.send(1, place, c.Seq, partResult, c.Count, c.DType, mine)
		}
	})
	for _, place := range g.others() {
		t.expect(1, place, c.Seq, partResult, part(place))
		t.brings(place, part(place))
	}
}

func (g *processGroup) Reduce(x device.Tensor, op ReduceOp, root int) Work {
	insist(g, opReduce, summable(x), x)
	return g.start(Call{Op: opReduce, Reduce: op.String(), Root: g.members[root]}, x, func(t *transit, _ int64) {
		if g.place == root {
			t.gathered(bytesOf(x), bytesOf(x))
		} else {
			t.brings(root, bytesOf(x))
		}
	})
}

func (g *processGroup) Broadcast(x device.Tensor, root int) Work {
	insist(g, opBroadcast, whole(x), x)
	return g.start(Call{Op: opBroadcast, Root: g.members[root]}, x, func(t *transit, _ int64) {
		if g.place != root {
			t.takes(root, bytesOf(x))
			return
		}
		for _, place := range g.others() {
			t.brings(place, bytesOf(x))
		}
	})
}

// stretch is the i-th of a tensor's Size() equal parts.
func (g *processGroup) stretch(long device.Tensor, i int) []byte {
	all := bytesOf(long)
	n := len(all) / g.Size()
	return all[i*n : (i+1)*n]
}

// settle copies what a rank brings to itself, unless it is there.
func settle(dst, src []byte) {
	if len(src) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}

func (g *processGroup) AllGather(out, in device.Tensor) Work {
	insist(g, opAllGather, times(g, out, in), out, in)
	return g.start(Call{Op: opAllGather, Root: -1}, in, func(t *transit, _ int64) {
		settle(g.stretch(out, g.place), bytesOf(in))
		for _, place := range g.others() {
			t.takes(place, g.stretch(out, place))
			t.brings(place, bytesOf(in))
		}
	})
}

func (g *processGroup) Gather(out, in device.Tensor, root int) Work {
	insist(g, opGather, whole(in) && (g.place != root || times(g, out, in)), out, in)
	return g.start(Call{Op: opGather, Root: g.members[root]}, in, func(t *transit, _ int64) {
		if g.place != root {
			t.brings(root, bytesOf(in))
			return
		}
		settle(g.stretch(out, g.place), bytesOf(in))
		for _, place := range g.others() {
			t.takes(place, g.stretch(out, place))
		}
	})
}

func (g *processGroup) Scatter(out, in device.Tensor, root int) Work {
	insist(g, opScatter, whole(out) && (g.place != root || times(g, in, out)), out, in)
	return g.start(Call{Op: opScatter, Root: g.members[root]}, out, func(t *transit, _ int64) {
		if g.place != root {
			t.takes(root, bytesOf(out))
			return
		}
		settle(bytesOf(out), g.stretch(in, g.place))
		for _, place := range g.others() {
			t.brings(place, g.stretch(in, place))
		}
	})
}

func (g *processGroup) ReduceScatter(out, in device.Tensor) Work {
	insist(g, opReduceScatter, times(g, in, out) && summable(in), out, in)
	return g.start(Call{Op: opReduceScatter, Reduce: Sum.String(), Root: -1}, out, func(t *transit, _ int64) {
		t.summed(g.stretch(in, g.place), bytesOf(out), nil)
		for _, place := range g.others() {
			t.brings(place, g.stretch(in, place))
		}
	})
}

func (g *processGroup) AllToAllV(recv, send []device.Tensor) Work {
	if len(recv) != g.Size() || len(send) != g.Size() {
		panic(fmt.Sprintf("comm: %s in a group of %d with %d to receive and %d to send", opAllToAll, g.Size(), len(recv), len(send)))
	}
	for i := range recv {
		insist(g, opAllToAll, whole(recv[i]) && whole(send[i]), recv[i], send[i])
	}
	mine := g.place
	if recv[mine].Bytes() != send[mine].Bytes() {
		err := fault.Errorf(fault.Internal, "%s of group %s %v: rank %d sends itself %v and expects %v", opAllToAll, g.name, g.members, g.world.rank, send[mine], recv[mine])
		g.world.Abort(err)
	}
	return g.start(Call{Op: opAllToAll, Root: -1}, device.Tensor{}, func(t *transit, _ int64) {
		settle(bytesOf(recv[mine]), bytesOf(send[mine]))
		for _, place := range g.others() {
			t.takes(place, bytesOf(recv[place]))
			t.brings(place, bytesOf(send[place]))
		}
	})
}

func (g *processGroup) Barrier() error {
	return g.start(Call{Op: opBarrier, Root: -1}, device.Tensor{}, func(t *transit, _ int64) {
		if g.place != 0 {
			t.brings(0, nil)
			t.expect(1, 0, t.call.Seq, partResult, nil)
			return
		}
		for _, place := range g.others() {
			t.takes(place, nil)
		}
		t.sum = func() {
			g.world.mu.Lock()
			defer g.world.mu.Unlock()
			for _, place := range g.others() {
				t.send(1, place, t.call.Seq, partResult, 0, 0, nil)
			}
		}
	}).Wait()
}

// Exchange posts all receives, then all sends.
func (g *processGroup) Exchange(transfers []Transfer) Work {
	for _, x := range transfers {
		insist(g, "exchange", whole(x.T), x.T)
	}
	return g.start(Call{Op: "exchange", Root: -1}, device.Tensor{}, func(t *transit, _ int64) {
		for _, send := range []bool{false, true} {
			for _, x := range transfers {
				switch {
				case x.Send != send:
				case send:
					t.send(0, x.Peer, g.sent[x.Peer], partMessage, x.T.Len(), x.T.DType, bytesOf(x.T))
					g.sent[x.Peer]++
				default:
					t.expect(0, x.Peer, g.received[x.Peer], partMessage, bytesOf(x.T))
					g.received[x.Peer]++
				}
			}
		}
	})
}
