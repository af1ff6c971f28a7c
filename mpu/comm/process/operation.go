package process

import (
	"fmt"
	"io"
	"slices"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// operation is a call of a World under way. It has stages: bytes that go and come, a sum of
// them, what goes and comes with the result and, along a tree, what is passed on of it.
// Fields belong to World.mu.
type operation struct {
	group *group
	call  *comm.Call
	left  [stages]int        // messages of each stage that have not gone or come
	then  [stages - 1]func() // after each stage but the last; nil: nothing
	stage int                // under way
	over  bool
	err   error
	done  chan struct{}

	parent *operation // of a piece of a long call: an operation of its own, that ends nothing but itself
	piece  uint32
	rest   []func() // pieces that have not begun
}

const stages = 3

// address is where a message is expected: the call, its part and who sends it.
type address struct {
	group uint64
	seq   int64
	part  uint32
	from  int // rank of the world
}

// receive is a message that is expected (call, want and dst), or has come before it was (head
// and data).
type receive struct {
	call  *operation
	stage int
	want  *comm.Call // this end's
	dst   []byte
	fold  func(at int64, theirs []byte) // adds what comes to dst instead of copying; nil: copy
	head  header
	data  []byte
}

// Parts of a call's messages; the bits above partBits are the piece's number.
const (
	partBrought = iota
	partResult
	partMessage // of an exchange
)

const partBits = 3

// head is the header of a message that belongs to a call.
func (o *operation) head(c *comm.Call, part uint32, bytes int) header {
	return header{Group: o.group.id, Seq: c.Seq, Part: part | o.piece<<partBits, From: uint32(c.Rank), Bytes: uint64(bytes), Count: c.Count, Root: int32(c.Root),
		DType: int32(c.DType), Op: uint32(c.Op), Reduce: uint32(c.Reduce), Kind: kindData}
}

// callOf is what a peer's header says it has called.
func (g *group) callOf(h *header) *comm.Call {
	c := &comm.Call{Group: g.Name, Members: g.Members, Rank: int(h.From), Seq: h.Seq, Op: comm.Op(h.Op), Reduce: comm.ReduceOp(h.Reduce), Root: int(h.Root), Count: h.Count, DType: device.F32}
	if h.DType >= 0 && h.DType < int32(device.DTypes) {
		c.DType = device.DType(h.DType)
	}
	return c
}

// send queues bytes for a member; the caller holds the lock.
func (o *operation) send(stage, member int, c *comm.Call, part uint32, data []byte) {
	o.left[stage]++
	o.group.world.links.send(o.group.Members[member], message{o.head(c, part, len(data)), data, o, stage})
}

// expect says where a member's bytes are to go; the caller holds the lock.
func (o *operation) expect(stage, member int, c *comm.Call, part uint32, dst []byte) {
	o.expectFolded(stage, member, c, part, dst, nil)
}

func (o *operation) expectFolded(stage, member int, c *comm.Call, part uint32, dst []byte, fold func(at int64, theirs []byte)) {
	p := o.group.world
	at := address{o.group.id, c.Seq, part | o.piece<<partBits, o.group.Members[member]}
	o.left[stage]++
	mine := &receive{call: o, stage: stage, want: c, dst: dst, fold: fold}
	b := p.receives[at]
	switch {
	case b != nil:
		delete(p.receives, at)
		if err := mine.matches(&b.head); err != nil {
			p.failLater(err)
			return
		}
		copyOrFold(dst, b.data, fold)
		o.left[stage]--
	case p.ended[at.from]:
		p.failLater(o.peerExited(at.from))
	default:
		p.receives[at] = mine
	}
}

// copyOrFold puts bytes that have come to where they belong.
func copyOrFold(dst, data []byte, fold func(at int64, theirs []byte)) {
	if fold != nil && len(data) > 0 {
		fold(0, data)
		return
	}
	copy(dst, data)
}

func (o *operation) peerExited(rank int) error {
	return exitcode.Errorf(exitcode.Internal, "rank %d ended while rank %d was waiting for it in %s", rank, o.group.world.rank, o.call)
}

// matches reports whether a peer's message belongs to the same call as ours.
func (b *receive) matches(h *header) error {
	theirs := b.call.group.callOf(h)
	if !meets(theirs, b.want) {
		return comm.Differ(theirs, b.want)
	}
	if int(h.Bytes) != len(b.dst) {
		return exitcode.Errorf(exitcode.Internal, "%s: rank %d sends %d bytes to rank %d, which expects %d", b.want, h.From, h.Bytes, b.want.Rank, len(b.dst))
	}
	return nil
}

// meets reports whether what one rank has called fits what another has; of messages
// each names the other.
func meets(a, b *comm.Call) bool {
	if a.Op == comm.Send && b.Op == comm.Receive || a.Op == comm.AllToAll && b.Op == comm.AllToAll {
		return a.Count == b.Count && a.DType == b.DType
	}
	return a.Agrees(b)
}

// accept reads the bytes of a message to where they are expected, or keeps them.
func (p *World) accept(h *header, from io.Reader) error {
	at := address{h.Group, h.Seq, h.Part, int(h.From)}
	// Whoever waits for it has said where the bytes go.
	p.mu.Lock()
	b := p.receives[at]
	if p.err != nil || (b != nil && b.call == nil) {
		p.mu.Unlock()
		return fmt.Errorf("a message arrived twice or too late")
	}
	delete(p.receives, at)
	p.mu.Unlock()
	// It is expected: read in place.
	if b != nil {
		if err := b.matches(h); err != nil {
			p.stop(p.session.Fail(err))
			return err
		}
		if err := b.read(from); err != nil {
			return err
		}
		b.call.arrived(b.stage)
		return nil
	}
	// It is early: keep a copy, unless the receiver has come meanwhile.
	data, err := readEarly(from, int64(h.Bytes))
	if err != nil {
		return err
	}
	p.mu.Lock()
	b = p.receives[at]
	if b == nil {
		p.receives[at] = &receive{head: *h, data: data}
		p.mu.Unlock()
		return nil
	}
	delete(p.receives, at)
	p.mu.Unlock()
	if err := b.matches(h); err != nil {
		p.stop(p.session.Fail(err))
		return err
	}
	copyOrFold(b.dst, data, b.fold)
	b.call.arrived(b.stage)
	return nil
}

// inPlace is a receiver whose bytes can be seen before they are taken.
type inPlace interface {
	next() ([]byte, error) // at least one byte
	done(n int)
}

// read takes the message's bytes.
func (b *receive) read(from io.Reader) error {
	if b.fold == nil {
		_, err := io.ReadFull(from, b.dst)
		return err
	}
	shared, is := from.(inPlace)
	if !is {
		theirs := staging(int64(len(b.dst)))
		_, err := io.ReadFull(from, theirs)
		if err == nil {
			copyOrFold(nil, theirs, b.fold)
		}
		return err
	}
	for at := int64(0); at < int64(len(b.dst)); {
		theirs, err := shared.next()
		if err != nil {
			return err
		}
		b.fold(at, theirs)
		at += int64(len(theirs))
		shared.done(len(theirs))
	}
	return nil
}

// readEarly reads a message that nobody expects yet. Memory grows with what comes.
func readEarly(from io.Reader, n int64) ([]byte, error) {
	const step = 64 << 20
	data := make([]byte, 0, min(n, step))
	for int64(len(data)) < n {
		next := min(n-int64(len(data)), step)
		data = slices.Grow(data, int(next))
		part := data[len(data) : len(data)+int(next)]
		if _, err := io.ReadFull(from, part); err != nil {
			return nil, err
		}
		data = data[:len(data)+int(next)]
	}
	return data, nil
}

// failLater ends the run from under the lock.
func (p *World) failLater(err error) {
	go func() { p.stop(p.session.Fail(err)) }()
}

// peerDone: a rank has sent its last message.
func (p *World) peerDone(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[rank] = true
	for at, b := range p.receives {
		if at.from == rank && b.call != nil {
			p.failLater(b.call.peerExited(rank))
			return
		}
	}
}

// sent and arrived count a message off.
func (o *operation) sent(stage int, err error) {
	if err == nil {
		o.arrived(stage)
	}
}

func (o *operation) arrived(stage int) {
	p := o.group.world
	p.mu.Lock()
	defer p.mu.Unlock()
	o.left[stage]--
	o.advance()
}

// locked is f under the lock, unless the run is lost by then.
func (o *operation) locked(f func()) func() {
	p := o.group.world
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			f()
		}
	}
}

// advance continues with the next stage when one is complete; the caller holds the lock.
func (o *operation) advance() {
	p := o.group.world
	for !o.over && p.err == nil && o.left[o.stage] == 0 {
		if o.stage == stages-1 {
			o.end(nil)
			return
		}
		then := o.then[o.stage]
		o.stage++
		if then != nil {
			stage := o.stage
			o.left[stage]++ // this itself
			go func() {
				then()
				o.arrived(stage)
			}()
		}
	}
}

// end ends the call; the caller holds the lock.
func (o *operation) end(err error) {
	if o.over {
		return
	}
	o.over, o.err = true, err
	if o.parent != nil {
		o.parent.pieceOver()
		return
	}
	delete(o.group.open, o)
	if err == nil {
		o.call.Ended = time.Now()
	}
	close(o.done)
}

// cut makes the call of n pieces, of which a few are under way at once: what one
// leaves in the cache is there when its result passes. The caller holds the lock.
func (o *operation) cut(n int, plan func(piece *operation, i int)) {
	for i := range n {
		o.rest = append(o.rest, func() {
			p := &operation{group: o.group, call: o.call, parent: o, piece: uint32(i)}
			p.left[0] = 1 // until all is posted
			plan(p, i)
			p.left[0]--
			p.advance()
		})
	}
	o.left[1] += n
	for range min(n, piecesAtOnce) {
		o.begin()
	}
}

const piecesAtOnce = 4

// begin begins the next piece, if there is one.
func (o *operation) begin() {
	if len(o.rest) > 0 {
		next := o.rest[0]
		o.rest = o.rest[1:]
		next()
	}
}

func (o *operation) pieceOver() {
	o.begin()
	o.left[1]--
	o.advance()
}

// Wait waits until the call is over, but no longer than the run's limit.
func (o *operation) Wait() error {
	select {
	case <-o.done:
		return o.err
	default:
	}
	p := o.group.world
	limit := time.NewTimer(p.limit)
	defer limit.Stop()
	select {
	case <-o.done:
	case <-limit.C:
		p.stop(p.session.Fail(exitcode.Errorf(exitcode.IO, "this rank has waited %v in %s for messages from ranks %v (--distributed-timeout-minutes)", p.limit, o.call, o.lacking())))
		<-o.done
	}
	return o.err
}

// lacking are the ranks whose messages have not come.
func (o *operation) lacking() (ranks []int) {
	p := o.group.world
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, b := range p.receives {
		if b.call != nil && (b.call == o || b.call.parent == o) && !slices.Contains(ranks, at.from) {
			ranks = append(ranks, at.from)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// staging is memory for bytes that are summed, aligned for any element.
func staging(bytes int64) []byte {
	if bytes == 0 {
		return nil
	}
	words := make([]uint64, (bytes+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes)
}
