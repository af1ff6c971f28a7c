package process

import (
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/reduce"
)

// group is a rank's engine in a run of processes.
type group struct {
	comm.Membership
	world  *World
	id     uint64 // of the name and the members
	piece  int    // bytes of an all-reduce that are carried as one
	device *device.Device

	next           int64             // number of the next collective
	sent, received []int64           // messages to and from each member
	open           map[*transit]bool // calls under way
	own            *ownSums          // Gloo's; nil: none made yet
}

// small is how many bytes everybody sends to everybody, rather than each rank
// summing its share: fewer messages one after another.
const small = 32 << 10

// Start enters the group's next collective.
func (g *group) Start(c *comm.Collective) comm.Work {
	p := g.world
	if err := g.device.Err(); err != nil {
		p.Abort(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return comm.Finished(p.err)
	}
	call := g.Call(c)
	if c.Op != comm.Exchange {
		call.Seq = g.next
		g.next++
	}
	call.Posted = time.Now()
	t := &transit{group: g, call: &call, done: make(chan struct{})}
	g.open[t] = true
	t.left[0] = 1 // until all is posted
	t.plan(c)
	t.left[0]--
	t.advance()
	return t
}

// plan says what goes and what comes; with the lock held.
func (t *transit) plan(c *comm.Collective) {
	switch c.Op {
	case comm.AllReduce:
		t.allReduce(c)
	case comm.Reduce:
		t.reduce(c)
	case comm.Broadcast:
		t.broadcast(c)
	case comm.AllGather:
		t.allGather(c)
	case comm.Gather:
		t.gather(c)
	case comm.Scatter:
		t.scatter(c)
	case comm.ReduceScatter:
		t.reduceScatter(c)
	case comm.AllToAll:
		t.allToAll(c)
	case comm.Barrier:
		t.barrier()
	case comm.Exchange:
		t.exchange(c)
	}
}

// brings sends bytes of the call's first stage to a member.
func (t *transit) brings(place int, data []byte) {
	t.send(0, place, t.call, partBrought, data)
}

// takes expects bytes of the call's first stage from a member.
func (t *transit) takes(place int, dst []byte) { t.expect(0, place, t.call, partBrought, dst) }

// others are the places of the group's other members, the next one first, so
// that not all send to the same.
func (g *group) others() (places []int) {
	for i := 1; i < g.Size(); i++ {
		places = append(places, (g.Rank+i)%g.Size())
	}
	return places
}

// share is the part of n elements that a place sums.
func (g *group) share(place int, n int64) (from, to int64) {
	each := (n + int64(g.Size()) - 1) / int64(g.Size())
	return min(n, int64(place)*each), min(n, int64(place+1)*each)
}

// summed expects everybody's n elements, and sets them, with our own, added in
// order, at `to`. Between two ranks they are added as they come; then nothing may
// send `to` before.
func (t *transit) summed(own []byte, to []byte, then func()) {
	g, c := t.group, t.call
	if g.Size() == 2 && len(own) > small {
		t.expectFolded(0, 1-g.Rank, c, partBrought, to, g.folder(c, own, to))
	} else {
		t.gathered(own, to)
	}
	add := t.then[0]
	if add == nil && then == nil {
		return
	}
	t.then[0] = func() {
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
	from[g.Rank] = own
	for _, place := range g.others() {
		from[place] = staging(int64(len(own)))
		t.takes(place, from[place])
	}
	if len(own) == 0 {
		return
	}
	t.then[0] = func() {
		m := reduce.Move{N: int64(len(own)) / c.DType.Size(), DType: c.DType, Reduce: c.Reduce, To: []unsafe.Pointer{unsafe.Pointer(&to[0])}}
		for _, f := range from {
			m.From = append(m.From, unsafe.Pointer(&f[0]))
		}
		reduce.Carry(g.world.pool, []reduce.Move{m})
	}
}

// folder combines a stretch of the other rank's bytes with our own, lower rank first.
func (g *group) folder(c *comm.Call, own, to []byte) func(at int64, theirs []byte) {
	return func(at int64, theirs []byte) {
		m := reduce.Move{N: int64(len(theirs)) / c.DType.Size(), DType: c.DType, Reduce: c.Reduce, To: []unsafe.Pointer{unsafe.Pointer(&to[at])},
			From: []unsafe.Pointer{unsafe.Pointer(&own[at]), unsafe.Pointer(&theirs[0])}}
		if g.Rank == 1 {
			m.From[0], m.From[1] = m.From[1], m.From[0]
		}
		m.Pair()
	}
}

// A longer all-reduce is carried in pieces: on one host they stay in the cache from
// rank to rank; between hosts each costs Gloo a question and an answer.
const (
	pieceHere   = 2 << 20
	pieceAcross = 16 << 20
)

// pieceOf is the same on all members.
func (p *World) pieceOf(members []int) int {
	all := p.session.Members()
	for _, m := range members {
		if all[m].Host != all[members[0]].Host || !p.links.roads.allows(roadShared) {
			return pieceAcross
		}
	}
	return pieceHere
}

func (t *transit) allReduce(c *comm.Collective) {
	g, all := t.group, bytesOf(c.In)
	switch {
	case g.world.fast && c.Reduce != comm.Tree && g.glooSums(c.In.DType):
		t.fastReduce(c.In, c.Reduce)
	case g.wide(len(all)):
		t.treeReduce(all)
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
	mine := part(g.Rank)
	t.summed(mine, mine, func() {
		for _, place := range g.others() {
			t.send(1, place, c, partResult, mine)
		}
	})
	for _, place := range g.others() {
		t.expect(1, place, c, partResult, part(place))
		t.brings(place, part(place))
	}
}

func (t *transit) reduce(c *comm.Collective) {
	if t.group.Rank == c.Root {
		t.gathered(bytesOf(c.In), bytesOf(c.Out))
	} else {
		t.brings(c.Root, bytesOf(c.In))
	}
}

func (t *transit) broadcast(c *comm.Collective) {
	if g := t.group; g.wide(len(bytesOf(c.In))) {
		whole := bytesOf(c.Out)
		if g.Rank == c.Root {
			whole = bytesOf(c.In)
		}
		t.down(g.tree(c.Root), whole)
		return
	}
	if t.group.Rank != c.Root {
		t.takes(c.Root, bytesOf(c.Out))
		return
	}
	for _, place := range t.group.others() {
		t.brings(place, bytesOf(c.In))
	}
}

// stretch is the i-th of a tensor's Size() equal parts.
func (g *group) stretch(long device.Tensor, i int) []byte {
	all := bytesOf(long)
	n := len(all) / g.Size()
	return all[i*n : (i+1)*n]
}

// copyOwn copies what a rank brings to itself, unless it is there.
func copyOwn(dst, src []byte) {
	if len(src) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}

func (t *transit) allGather(c *comm.Collective) {
	g := t.group
	if own := bytesOf(c.In); g.wide(len(own)) {
		t.treeGather(0, own, bytesOf(c.Out), true)
		return
	}
	copyOwn(g.stretch(c.Out, g.Rank), bytesOf(c.In))
	for _, place := range g.others() {
		t.takes(place, g.stretch(c.Out, place))
		t.brings(place, bytesOf(c.In))
	}
}

func (t *transit) gather(c *comm.Collective) {
	g := t.group
	if own := bytesOf(c.In); g.wide(len(own)) {
		t.treeGather(c.Root, own, bytesOf(c.Out), false)
		return
	}
	if g.Rank != c.Root {
		t.brings(c.Root, bytesOf(c.In))
		return
	}
	copyOwn(g.stretch(c.Out, g.Rank), bytesOf(c.In))
	for _, place := range g.others() {
		t.takes(place, g.stretch(c.Out, place))
	}
}

func (t *transit) scatter(c *comm.Collective) {
	g := t.group
	if g.Rank != c.Root {
		t.takes(c.Root, bytesOf(c.Out))
		return
	}
	copyOwn(bytesOf(c.Out), g.stretch(c.In, g.Rank))
	for _, place := range g.others() {
		t.brings(place, g.stretch(c.In, place))
	}
}

func (t *transit) reduceScatter(c *comm.Collective) {
	g := t.group
	t.summed(g.stretch(c.In, g.Rank), bytesOf(c.Out), nil)
	for _, place := range g.others() {
		t.brings(place, g.stretch(c.In, place))
	}
}

func (t *transit) allToAll(c *comm.Collective) {
	g := t.group
	send := func(place int) device.Tensor { return c.Transfers[2*place].T }
	recv := func(place int) device.Tensor { return c.Transfers[2*place+1].T }
	copyOwn(bytesOf(recv(g.Rank)), bytesOf(send(g.Rank)))
	for _, place := range g.others() {
		t.expect(0, place, t.crossing(place, recv(place)), partBrought, bytesOf(recv(place)))
		t.send(0, place, t.crossing(place, send(place)), partBrought, bytesOf(send(place)))
	}
}

// crossing is what this rank has to do with one other in an all-to-all.
func (t *transit) crossing(place int, with device.Tensor) *comm.Call {
	c := *t.call
	c.Root, c.Count, c.DType = t.group.Members[place], with.Len(), with.DType
	return &c
}

// barrier asks the first rank, which answers when it has heard of all.
func (t *transit) barrier() {
	g := t.group
	if g.wide(0) {
		t.treeBarrier()
		return
	}
	if g.Rank != 0 {
		t.brings(0, nil)
		t.expect(1, 0, t.call, partResult, nil)
		return
	}
	for _, place := range g.others() {
		t.takes(place, nil)
	}
	t.then[0] = func() {
		g.world.mu.Lock()
		defer g.world.mu.Unlock()
		for _, place := range g.others() {
			t.send(1, place, t.call, partResult, nil)
		}
	}
}

// exchange posts all receives, then all sends.
func (t *transit) exchange(c *comm.Collective) {
	g := t.group
	for _, x := range c.Transfers {
		if !x.Send {
			call := g.Message(&x, g.received[x.Peer])
			g.received[x.Peer]++
			t.expect(0, x.Peer, &call, partMessage, bytesOf(x.T))
		}
	}
	for _, x := range c.Transfers {
		if x.Send {
			call := g.Message(&x, g.sent[x.Peer])
			g.sent[x.Peer]++
			t.send(0, x.Peer, &call, partMessage, bytesOf(x.T))
		}
	}
}
