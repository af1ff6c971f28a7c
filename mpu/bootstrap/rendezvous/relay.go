package rendezvous

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// relay connects the other ranks of a host to rank 0, by the connection of the rank that has it, so that rank 0 has one
// connection a host. It is the first rank of the host that takes the host's name (LocalName) as a port; the others
// call there, prove that they have the run's secret, and say what they would say to rank 0. Their heartbeats travel together,
// once a second; all else is passed on at once.
//
// A rank that relays is needed until the others are done, as rank 0 is. If its process ends or is stopped, that is the
// end of the run, as of any rank: rank 0 and the ranks that it relays for name it.
type relay struct {
	config   *Config
	listener net.Listener
	callers  *Unproved

	mu     sync.Mutex
	up     func(*message) error // to rank 0; nil: there is no connection yet
	seats  []*seat              // seat 1 first
	beats  []Beat               // that wait to be sent
	size   int                  // their bytes
	at     string               // what the rank itself is at
	joined []byte               // the list of all ranks; nil: they have not met
	ended  []byte               // the verdict; nil: none
	closed bool
	idle   sync.WaitGroup
}

// seat is a rank that is relayed.
type seat struct {
	*queue
	number int // of its messages
	member *Member
	left   bool // it has said its last word, or is lost
}

// mostBeats is how many bytes of heartbeats wait for the next second.
const mostBeats = fromRank / 4

// host finds this host's way to rank 0: a connection with the rank that relays, or nil if this rank is to have a connection with
// rank 0 itself, since it relays (Session.relay) or ranks of this host cannot find each other.
func (s *Session) host() net.Conn {
	name := LocalName(s.config.Secret, s.config.Addr)
	if s.config.Rank == 0 || s.config.Loose || s.relay != nil || name == "" {
		return nil
	}
	var pauses Backoff
	for end := time.Now().Add(DropTime); time.Now().Before(end); time.Sleep(pauses.Next()) {
		conn, err := net.DialTimeout("unix", name, DialTime)
		if err == nil {
			if err = Call(conn, s.config.Secret); err == nil {
				return conn
			}
			conn.Close() // it has failed already
			if !errors.Is(err, ErrDropped) {
				return nil // it does not answer, or is not of this run
			}
			continue
		}
		if errors.Is(err, syscall.EAGAIN) { // many call at once
			continue
		}
		l, err := net.Listen("unix", name)
		if err == nil {
			s.relay = newRelay(&s.config, l)
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	return nil
}

func newRelay(c *Config, l net.Listener) *relay {
	r := &relay{config: c, listener: l, callers: NewUnproved()}
	r.idle.Go(r.accept)
	return r
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of file descriptors, for one
			continue
		}
		r.callers.Add(conn)
		r.idle.Go(func() { r.serve(conn) })
	}
}

// serve is a rank's connection from its beginning to its end.
func (r *relay) serve(conn net.Conn) {
	defer conn.Close() // nothing more is wanted of it
	err := Answer(conn, r.config.Secret)
	from := newReader(conn)
	var m *message
	if err == nil && conn.SetReadDeadline(time.Now().Add(proofTime)) == nil {
		m, err = from.message(fromCaller)
	}
	r.callers.Remove(conn)
	if err != nil || m == nil || m.Kind != kindJoin || m.Member == nil || conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	s := r.admit(conn, m.Member)
	if s == nil {
		return
	}
	for err == nil {
		if m, err = from.message(fromRank); err == nil {
			r.hear(s, m)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.left {
		s.left = true
		r.pass(s.number, &message{Kind: kindGone})
	}
	s.end()
}

// admit takes a rank; nil: the run is over.
func (r *relay) admit(conn net.Conn, m *Member) *seat {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil || r.closed {
		return nil
	}
	r.idle.Add(1)
	s := &seat{queue: newQueue(conn, 16, r.idle.Done), number: len(r.seats) + 1, member: m}
	r.seats = append(r.seats, s)
	r.pass(s.number, &message{Kind: kindJoin, Member: m})
	return s
}

// connect passes on who has come so far: a connection with rank 0 has been made, maybe once more.
func (r *relay) connect(up func(*message) error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = up
	r.seats = slices.DeleteFunc(r.seats, func(s *seat) bool { return s.left })
	for i, s := range r.seats {
		s.number = i + 1
		r.pass(s.number, &message{Kind: kindJoin, Member: s.member})
	}
}

// disconnect keeps what ranks say until connect.
func (r *relay) disconnect() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = nil
}

// pass sends what a rank says, after the heartbeats before it. The caller holds the lock.
func (r *relay) pass(number int, m *message) {
	if r.up == nil {
		return
	}
	if len(r.beats) > 0 {
		r.flush()
	}
	m.Seat = number
	_ = r.up(m) // a broken connection shows in Session.listen
}

// flush sends the heartbeats that wait; none is a sign of life, too. The caller holds the lock.
func (r *relay) flush() {
	if r.up != nil {
		_ = r.up(&message{Kind: kindBeat, beats: append([]Beat{}, r.beats...)}) // a broken connection shows in Session.listen
	}
	r.beats, r.size = r.beats[:0], 0
}

// hear takes what a rank says.
func (r *relay) hear(s *seat, m *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range m.beats {
		if b.Seat == 0 {
			r.add(Beat{s.number, bytes.Clone(b.At), bytes.Clone(b.Report)})
		}
	}
	if m.Kind == kindBeat {
		return
	}
	if m.Kind == kindBye {
		s.left = true
	}
	r.pass(s.number, m)
}

func (r *relay) add(b Beat) {
	r.beats = append(r.beats, b)
	if r.size += len(b.At) + len(b.Report); r.size > mostBeats {
		r.flush()
	}
}

// beat sends all heartbeats, with that of the rank itself, and beats to the ranks of this host.
func (r *relay) beat(own *Beat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own != nil {
		r.add(*own)
	}
	r.flush()
	if own != nil {
		r.at = string(own.At)
	}
	r.toAll(beatFrame(r.config.Rank, r.at))
}

// say is what the rank itself says, in its turn.
func (r *relay) say(m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.beats) > 0 {
		r.flush()
	}
	if r.up == nil {
		return net.ErrClosed
	}
	return r.up(m)
}

func (r *relay) toAll(frame []byte) {
	for _, s := range r.seats {
		s.send(frame)
	}
}

// deliver takes what rank 0 says, and reports whether it was for other ranks alone.
func (r *relay) deliver(m *message, frame []byte) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Kind == kindJoined && r.joined == nil:
		r.joined = bytes.Clone(frame)
		r.toAll(beatFrame(r.config.Rank, r.at)) // whom they are connected with
		r.toAll(r.joined)
	case m.Kind == kindVerdict:
		r.end(bytes.Clone(frame))
	case m.Seat > 0 && m.Seat <= len(r.seats):
		s := r.seats[m.Seat-1]
		m.Seat = 0
		s.send(mustFrame(m))
		if m.Kind == kindRefused {
			s.left = true
			s.end()
		}
		return true
	}
	return m.Seat > 0
}

// verdict ends the run for the ranks of this host.
func (r *relay) verdict(frame []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(frame)
}

func (r *relay) end(frame []byte) {
	if r.ended == nil {
		r.ended = frame
		r.toAll(frame)
	}
}

// staying reports whether ranks are still relayed.
func (r *relay) staying() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.seats, func(s *seat) bool { return !s.left })
}

// drain waits until all ranks of this host are done; after a verdict, a short while, for them to hear it.
func (r *relay) drain(lost <-chan struct{}) {
	var limit <-chan time.Time
	for r.staying() {
		select {
		case <-lost:
			lost, limit = nil, time.After(lastWords)
		case <-limit:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// close ends the relay, once what is queued is sent.
func (r *relay) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closed = true
	for _, s := range r.seats {
		s.end()
		_ = s.conn.SetReadDeadline(time.Now().Add(lastWords)) // it closes the connection before
	}
	r.mu.Unlock()
	r.listener.Close() // nothing more is wanted of it
	r.callers.Close()
	r.idle.Wait()
}

// cut ends all connections, as the kernel does.
func (r *relay) cut() {
	if r == nil {
		return
	}
	r.listener.Close() // as it does
	r.callers.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = nil
	for _, s := range r.seats {
		s.conn.Close() // as it does
	}
}
