package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/bootstrap/rendezvous"
)

// links are a process's connections with its peers: what it sends to a rank goes
// over one that it has made, what it receives over one that the rank has made. A
// connection proves who is at its ends, and breaks when one dies; what carries the
// bytes is agreed on it (transport.go).
type links struct {
	process    *World
	listener   net.Listener
	key        []byte
	transports *transports
	alive      context.Context // until all connections are ended
	kill       context.CancelFunc

	mu      sync.Mutex
	out     map[int]*sendQueue
	conns   map[net.Conn]func() // each with what ends the waits of its transport
	closed  bool
	idle    sync.WaitGroup // who receives
	sending sync.WaitGroup
}

// sendQueue is the way to one rank: messages in the order of their calls.
type sendQueue struct {
	rank  int
	ready *sync.Cond
	queue []message
	over  bool // no more will come
}

// message is one message to send; its bytes belong to the call until it is sent.
type message struct {
	head  header
	data  []byte
	call  *operation
	stage int
}

// header goes before a message's bytes: 64 of them, little endian.
type header struct {
	Group  uint64
	Seq    int64
	Part   uint32 // 0: what a rank brings; 1: a result; 2: point to point
	From   uint32 // rank of the world
	Bytes  uint64
	Count  int64
	Root   int32
	DType  int32
	Op     uint32
	Reduce uint32
	Kind   uint32
	_      uint32
}

const headerSize = 64

// Kinds of messages.
const (
	kindData = 0x6d6f6e6f
	kindBye  = 0x6d6f6e62
)

// biggest is the longest message that is taken: more is not a tensor.
const biggest = 1 << 40

func newLinks(p *World, listener net.Listener) *links {
	l := &links{process: p, listener: listener, key: p.session.Key(), out: map[int]*sendQueue{}, conns: map[net.Conn]func(){}}
	l.transports = newTransports(l)
	l.alive, l.kill = context.WithCancel(context.Background())
	l.idle.Add(1)
	go l.accept()
	return l
}

func (l *links) accept() {
	defer l.idle.Done()
	callers := rendezvous.NewUnproved()
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of file descriptors, for one
			continue
		}
		callers.Add(conn)
		if !l.keep(conn, func() {}) {
			return
		}
		l.idle.Add(1)
		go func() {
			defer l.idle.Done()
			defer l.drop(conn)
			err := rendezvous.Answer(conn, l.key)
			callers.Remove(conn)
			if err == nil {
				l.receive(conn)
			}
		}()
	}
}

// keep remembers a connection and how to end what waits on its transport; false: too late.
func (l *links) keep(c net.Conn, abort func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		abort()
		c.Close() // nobody wants it
		return false
	}
	l.conns[c] = abort
	return true
}

func (l *links) drop(c net.Conn) {
	c.Close() // nothing more is wanted of it
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// receive takes one rank's messages until it is done.
func (l *links) receive(conn net.Conn) {
	p := l.process
	// The transport is agreed on first, which also says who is at the other end.
	in, from, err := l.answerOffers(conn)
	if err != nil {
		l.broken(from, err)
		return
	}
	defer in.close()
	// A message is a header and its bytes, until the peer says goodbye.
	var bytes [headerSize]byte
	for {
		if err := in.head(bytes[:]); err != nil {
			l.broken(from, err)
			return
		}
		var h header
		if _, err := binary.Decode(bytes[:], binary.LittleEndian, &h); err != nil || (h.Kind != kindData && h.Kind != kindBye) ||
			h.Bytes > biggest || int(h.From) != from {
			l.broken(from, fmt.Errorf("an invalid message was received"))
			return
		}
		if h.Kind == kindBye {
			p.peerDone(from)
			return
		}
		in.expect(int64(h.Bytes))
		if err := p.accept(&h, in); err != nil {
			l.broken(from, err)
			return
		}
	}
}

// broken reports a connection that has ended before its time.
func (l *links) broken(rank int, err error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if !closed && rank >= 0 {
		go l.process.suspect(rank, err)
	}
}

// send queues a message to a rank.
func (l *links) send(rank int, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.out[rank]
	if o == nil {
		o = &sendQueue{rank: rank, ready: sync.NewCond(&l.mu), over: l.closed}
		l.out[rank] = o
		l.sending.Add(1)
		go l.deliver(o)
	}
	o.queue = append(o.queue, m)
	o.ready.Signal()
}

// deliver sends what is queued for a rank, until the end.
func (l *links) deliver(o *sendQueue) {
	defer l.sending.Done()
	out, conn, err := l.connect(o.rank)
	if err == nil {
		defer l.drop(conn)
		defer out.close()
	}
	for {
		l.mu.Lock()
		for len(o.queue) == 0 && !o.over {
			o.ready.Wait()
		}
		if len(o.queue) == 0 {
			l.mu.Unlock()
			if err == nil {
				h := header{Kind: kindBye, From: uint32(l.process.rank)}
				_ = out.send(&h, nil) // it may have left before
			}
			return
		}
		m := o.queue[0]
		o.queue = o.queue[1:]
		l.mu.Unlock()
		if err == nil {
			err = out.send(&m.head, m.data)
		}
		if err != nil {
			l.broken(o.rank, err)
		}
		m.call.sent(m.stage, err)
	}
}

// connect makes the way to a rank. One that has too many connections at once drops some, and is
// called again.
func (l *links) connect(rank int) (sender, net.Conn, error) {
	member := l.process.session.Members()[rank]
	var pauses rendezvous.Backoff
	for end := time.Now().Add(rendezvous.DropTime); ; {
		out, conn, err := l.call(&member)
		if !errors.Is(err, rendezvous.ErrDropped) || time.Now().After(end) {
			return out, conn, err
		}
		select {
		case <-l.alive.Done():
			return nil, nil, net.ErrClosed
		case <-time.After(pauses.Next()):
		}
	}
}

// call makes one attempt.
func (l *links) call(member *rendezvous.Member) (sender, net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second}
	conn, err := dialer.DialContext(l.alive, "tcp", member.Addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; check that no firewall blocks connections between the hosts, and that --master-addr is in a network that all of them share", err)
	}
	if !l.keep(conn, func() {}) {
		return nil, nil, net.ErrClosed
	}
	err = rendezvous.Call(conn, l.key)
	var out sender
	if err == nil {
		out, err = l.offer(conn, member)
	}
	if err != nil {
		l.drop(conn)
		return nil, nil, rendezvous.Dropped(err)
	}
	return out, conn, nil
}

func (h *header) bytes() ([]byte, error) {
	return binary.Append(make([]byte, 0, headerSize), binary.LittleEndian, h)
}

// write sends the header and its bytes.
func (h *header) write(c net.Conn, data []byte) error {
	bytes, err := h.bytes()
	if err != nil {
		return err
	}
	parts := net.Buffers{bytes, data}
	_, err = parts.WriteTo(c)
	return err
}

// cut ends all connections at once.
func (l *links) cut() {
	go l.transports.abort()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.kill()
	for c, abort := range l.conns {
		abort()
		c.Close() // nothing more is wanted of it
	}
	l.end()
}

// end lets the senders go once they have sent what is queued; the caller holds the lock.
func (l *links) end() {
	for _, o := range l.out {
		o.over = true
		o.ready.Signal()
	}
}

// flush sends what is queued, and that it was the last.
func (l *links) flush() {
	l.mu.Lock()
	l.closed = true
	l.end()
	l.mu.Unlock()
	l.sending.Wait()
}

// close ends the connections and returns when nothing of this rank is touched
// any more.
func (l *links) close() {
	l.cut()
	l.listener.Close() // nothing more is wanted of it
	l.sending.Wait()
	l.idle.Wait()
	l.transports.close()
}

// bytesOf is the memory of a tensor on the host.
func bytesOf(t device.Tensor) []byte {
	if !t.Given() || t.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Data), t.Bytes())
}
