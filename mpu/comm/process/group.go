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

	next           int64               // number of the next collective
	sent, received []int64             // messages to and from each member
	open           map[*operation]bool // calls under way
	own            *ownSums            // Gloo's; nil: none made yet
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
	t := &operation{group: g, call: &call, done: make(chan struct{})}
	g.open[t] = true
	t.left[0] = 1 // until all is posted
	t.plan(c)
	t.left[0]--
	t.advance()
	return t
}

// plan sets what is sent and received; the caller holds the lock.
func (o *operation) plan(c *comm.Collective) {
	switch c.Op {
	case comm.AllReduce:
		o.allReduce(c)
	case comm.Reduce:
		o.reduce(c)
	case comm.Broadcast:
		o.broadcast(c)
	case comm.AllGather:
		o.allGather(c)
	case comm.Gather:
		o.gather(c)
	case comm.Scatter:
		o.scatter(c)
	case comm.ReduceScatter:
		o.reduceScatter(c)
	case comm.AllToAll:
		o.allToAll(c)
	case comm.Barrier:
		o.barrier()
	case comm.Exchange:
		o.exchange(c)
	}
}

// brings sends bytes of the call's first stage to a member.
func (o *operation) sendTo(member int, data []byte) {
	o.send(0, member, o.call, partBrought, data)
}

// takes expects bytes of the call's first stage from a member.
func (o *operation) recvFrom(member int, dst []byte) { o.expect(0, member, o.call, partBrought, dst) }

// others are the numbers of the group's other members, the next one first, so
// that not all send to the same.
func (g *group) others() (members []int) {
	for i := 1; i < g.Size(); i++ {
		members = append(members, (g.Rank+i)%g.Size())
	}
	return members
}

// share is the part of n elements that a member sums.
func (g *group) share(member int, n int64) (from, to int64) {
	each := (n + int64(g.Size()) - 1) / int64(g.Size())
	return min(n, int64(member)*each), min(n, int64(member+1)*each)
}

// summed expects everybody's n elements, and sets them, with our own, added in
// order, at `to`. Between two ranks they are added as they come; then nothing may
// send `to` before.
func (o *operation) summed(own []byte, to []byte, then func()) {
	g, c := o.group, o.call
	if g.Size() == 2 && len(own) > small {
		o.expectFolded(0, 1-g.Rank, c, partBrought, to, g.folder(c, own, to))
	} else {
		o.gathered(own, to)
	}
	if then == nil {
		return
	}
	add, locked := o.then[0], o.locked(then)
	o.then[0] = func() {
		if add != nil {
			add()
		}
		locked()
	}
}

// gathered keeps what comes until all is there, then sums it.
func (o *operation) gathered(own, to []byte) {
	g, c := o.group, o.call
	from := make([][]byte, g.Size())
	from[g.Rank] = own
	for _, member := range g.others() {
		from[member] = staging(int64(len(own)))
		o.recvFrom(member, from[member])
	}
	if len(own) == 0 {
		return
	}
	o.then[0] = func() {
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
		if all[m].Host != all[members[0]].Host || !p.links.transports.allows(transportShared) {
			return pieceAcross
		}
	}
	return pieceHere
}

func (o *operation) allReduce(c *comm.Collective) {
	g, all := o.group, bytesOf(c.In)
	switch {
	case g.world.fast && c.Reduce != comm.Tree && g.glooSums(c.In.DType):
		o.fastReduce(c.In, c.Reduce)
	case g.wide(len(all)):
		o.treeReduce(all)
	case len(all) <= small:
		o.gathered(all, all)
		for _, member := range g.others() {
			o.sendTo(member, all)
		}
	case len(all) <= g.piece:
		o.reduceShares(all)
	default:
		o.cut((len(all)+g.piece-1)/g.piece, func(piece *operation, i int) {
			piece.reduceShares(all[i*g.piece : min(len(all), (i+1)*g.piece)])
		})
	}
}

// reduceShares has every rank sum its share of the elements, then gives it to all.
func (o *operation) reduceShares(all []byte) {
	g, c := o.group, o.call
	size := c.DType.Size()
	n := int64(len(all)) / size
	part := func(member int) []byte {
		from, to := g.share(member, n)
		return all[from*size : to*size]
	}
	mine := part(g.Rank)
	o.summed(mine, mine, func() {
		for _, member := range g.others() {
			o.send(1, member, c, partResult, mine)
		}
	})
	for _, member := range g.others() {
		o.expect(1, member, c, partResult, part(member))
		o.sendTo(member, part(member))
	}
}

func (o *operation) reduce(c *comm.Collective) {
	if o.group.Rank == c.Root {
		o.gathered(bytesOf(c.In), bytesOf(c.Out))
	} else {
		o.sendTo(c.Root, bytesOf(c.In))
	}
}

func (o *operation) broadcast(c *comm.Collective) {
	if g := o.group; g.wide(len(bytesOf(c.In))) {
		full := bytesOf(c.Out)
		if g.Rank == c.Root {
			full = bytesOf(c.In)
		}
		o.down(g.tree(c.Root), full)
		return
	}
	if o.group.Rank != c.Root {
		o.recvFrom(c.Root, bytesOf(c.Out))
		return
	}
	for _, member := range o.group.others() {
		o.sendTo(member, bytesOf(c.In))
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

func (o *operation) allGather(c *comm.Collective) {
	g := o.group
	if own := bytesOf(c.In); g.wide(len(own)) {
		o.treeGather(0, own, bytesOf(c.Out), true)
		return
	}
	copyOwn(g.stretch(c.Out, g.Rank), bytesOf(c.In))
	for _, member := range g.others() {
		o.recvFrom(member, g.stretch(c.Out, member))
		o.sendTo(member, bytesOf(c.In))
	}
}

func (o *operation) gather(c *comm.Collective) {
	g := o.group
	if own := bytesOf(c.In); g.wide(len(own)) {
		o.treeGather(c.Root, own, bytesOf(c.Out), false)
		return
	}
	if g.Rank != c.Root {
		o.sendTo(c.Root, bytesOf(c.In))
		return
	}
	copyOwn(g.stretch(c.Out, g.Rank), bytesOf(c.In))
	for _, member := range g.others() {
		o.recvFrom(member, g.stretch(c.Out, member))
	}
}

func (o *operation) scatter(c *comm.Collective) {
	g := o.group
	if g.Rank != c.Root {
		o.recvFrom(c.Root, bytesOf(c.Out))
		return
	}
	copyOwn(bytesOf(c.Out), g.stretch(c.In, g.Rank))
	for _, member := range g.others() {
		o.sendTo(member, g.stretch(c.In, member))
	}
}

func (o *operation) reduceScatter(c *comm.Collective) {
	g := o.group
	o.summed(g.stretch(c.In, g.Rank), bytesOf(c.Out), nil)
	for _, member := range g.others() {
		o.sendTo(member, g.stretch(c.In, member))
	}
}

func (o *operation) allToAll(c *comm.Collective) {
	g := o.group
	send := func(member int) device.Tensor { return c.Transfers[2*member].T }
	recv := func(member int) device.Tensor { return c.Transfers[2*member+1].T }
	copyOwn(bytesOf(recv(g.Rank)), bytesOf(send(g.Rank)))
	for _, member := range g.others() {
		o.expect(0, member, o.crossing(member, recv(member)), partBrought, bytesOf(recv(member)))
		o.send(0, member, o.crossing(member, send(member)), partBrought, bytesOf(send(member)))
	}
}

// crossing is what this rank has to do with one other in an all-to-all.
func (o *operation) crossing(member int, with device.Tensor) *comm.Call {
	c := *o.call
	c.Root, c.Count, c.DType = o.group.Members[member], with.Len(), with.DType
	return &c
}

// barrier asks the first rank, which answers when it has heard of all.
func (o *operation) barrier() {
	g := o.group
	if g.wide(0) {
		o.treeBarrier()
		return
	}
	if g.Rank != 0 {
		o.sendTo(0, nil)
		o.expect(1, 0, o.call, partResult, nil)
		return
	}
	for _, member := range g.others() {
		o.recvFrom(member, nil)
	}
	o.then[0] = o.locked(func() {
		for _, member := range g.others() {
			o.send(1, member, o.call, partResult, nil)
		}
	})
}

// exchange posts all receives, then all sends.
func (o *operation) exchange(c *comm.Collective) {
	g := o.group
	for _, x := range c.Transfers {
		if !x.Send {
			call := g.Message(&x, g.received[x.Peer])
			g.received[x.Peer]++
			o.expect(0, x.Peer, &call, partMessage, bytesOf(x.T))
		}
	}
	for _, x := range c.Transfers {
		if x.Send {
			call := g.Message(&x, g.sent[x.Peer])
			g.sent[x.Peer]++
			o.send(0, x.Peer, &call, partMessage, bytesOf(x.T))
		}
	}
}
