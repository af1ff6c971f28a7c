package rendezvous

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// server is rank 0's part: it gathers the ranks, then watches them.
type server struct {
	config   Config
	listener net.Listener
	callers  *Unproved
	entering *Unproved // that have proved who they are, and have still to say which rank
	started  time.Time

	mu      sync.Mutex
	lines   map[*line]bool // that have not ended
	peers   []*peer        // that have joined, by rank
	came    int            // how many these are
	staying int            // of these, other than rank 0, that have not left
	full    bool           // all have joined
	joined  []byte         // the list of all, as it was sent
	foreign int            // callers that speak as ranks do, but not with this run's secret
	from    string         // the last of them
	beaten  time.Time      // when all were last shown that rank 0 lives
	verdict *failure.Verdict
	hears   func(rank int, report []byte) // what ranks tell; nil: nobody wants it yet
	stopped bool
	quit    chan struct{}
	done    chan struct{} // all ranks are done, or a verdict is sent
	closing sync.Once
	idle    sync.WaitGroup
}

// line is a connection, which carries the ranks of one host.
type line struct {
	*queue
	from  *reader
	seats []*peer // by seat; nil: refused
	heard time.Time
}

// peer is one rank that has joined.
type peer struct {
	Member
	line  *line
	seat  int
	heard time.Time
	is    string // what it is at
	left  bool   // it has said its last word, or is lost
}

// mostQueued is how many messages may wait for a connection: one for each of its ranks, at the most.
const mostQueued = 256

// portTime is how long the run's port may be somebody else's: a connection's, or that of a
// run that is ending.
const portTime = 5 * time.Second

// listen takes the run's port as soon as nobody has it.
func listen(c Config) (net.Listener, error) {
	var config net.ListenConfig
	if OwnName(c.Addr, true) {
		c.Addr = onAll(c.Addr)
	}
	for end := time.Now().Add(min(portTime, c.Timeout)); ; time.Sleep(20 * time.Millisecond) {
		l, err := config.Listen(context.Background(), "tcp", c.Addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// serve listens at the run's address.
func serve(c Config) (*server, error) {
	var listener net.Listener = c.Listener
	var err error
	if c.Listener == nil {
		listener, err = listen(c)
	} else {
		err = c.Listener.open()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE): // to start again would not help
		return nil, exitcode.Errorf(exitcode.Usage, "another run, or one that has just ended, uses the port of %s; choose another --master-port", c.Addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, exitcode.Errorf(exitcode.Usage, "%s is not an address of this host; %s 0 must run on the host of the master address", c.Addr, c.Called)
	case err != nil:
		return nil, exitcode.Errorf(exitcode.IO, "%s 0 cannot listen at %s: %w", c.Called, c.Addr, err)
	}
	s := &server{config: c, listener: listener, callers: NewUnproved(), entering: newUnproved(math.MaxInt), started: time.Now(), lines: map[*line]bool{}, peers: make([]*peer, c.World), quit: make(chan struct{}), done: make(chan struct{})}
	if c.unproved > 0 {
		s.callers = newUnproved(c.unproved)
	}
	s.idle.Add(2)
	go s.accept()
	go s.watch()
	return s, nil
}

func (s *server) accept() {
	defer s.idle.Done()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.quit:
				return
			case <-time.After(10 * time.Millisecond): // out of file descriptors, for one
				continue
			}
		}
		s.callers.Add(conn)
		s.idle.Add(1)
		go s.greet(conn)
	}
}

// greet lets the ranks of a connection in, and reads what they say until they leave.
func (s *server) greet(conn net.Conn) {
	defer s.idle.Done()
	defer conn.Close() // nothing more is wanted of it
	err := Answer(conn, s.config.Secret)
	s.callers.Remove(conn)
	if errors.Is(err, ErrSecret) {
		s.mu.Lock()
		s.foreign, s.from = s.foreign+1, conn.RemoteAddr().String()
		s.mu.Unlock()
	}
	s.entering.Add(conn)
	var m *message
	from := newReader(conn)
	if err == nil {
		if err = conn.SetReadDeadline(time.Now().Add(proofTime)); err == nil {
			m, err = from.message(fromCaller)
		}
	}
	s.entering.Remove(conn)
	if err != nil || m.Kind != kindJoin || m.Member == nil || conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	s.idle.Add(1)
	l := &line{queue: newQueue(conn, mostQueued, s.idle.Done), from: from, heard: time.Now()}
	s.mu.Lock()
	s.lines[l] = true
	in := s.admit(l, m)
	s.mu.Unlock()
	if in {
		s.follow(l)
		return
	}
	s.drop(l)
	if conn.SetReadDeadline(time.Now().Add(3*time.Second)) == nil { // until it has read why
		_, _ = io.CopyN(io.Discard, from.from, fromCaller)
	}
}

// drop sends a connection what is queued for it, then no more.
func (s *server) drop(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lines, l)
	l.end()
}

// toAll sends a message to all ranks.
func (s *server) toAll(frame []byte) {
	for l := range s.lines {
		l.send(frame)
	}
}

// drain waits until all other ranks are done; after a verdict, a short while,
// for them to hear it.
func (s *server) drain() {
	var limit <-chan time.Time
	for {
		s.mu.Lock()
		if s.verdict != nil && limit == nil {
			limit = time.After(lastWords)
		}
		s.checkDone()
		s.mu.Unlock()
		select {
		case <-s.done:
			return
		case <-limit:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// giveUp ends a run that has not begun.
func (s *server) giveUp(why error) {
	s.mu.Lock()
	v := failure.Of(-1, why)
	v.Rank = max(0, v.Rank)
	s.judge(v.Brief())
	s.mu.Unlock()
	s.drain()
	s.stop()
}

// stop ends the server.
func (s *server) stop() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped = true
	close(s.quit)
	var conns []net.Conn
	for l := range s.lines {
		l.end()
		conns = append(conns, l.conn)
	}
	for _, p := range s.peers {
		if p != nil {
			p.left = true
		}
	}
	s.staying = 0
	s.mu.Unlock()
	s.listener.Close() // nothing more is wanted of it
	s.callers.Close()
	s.entering.Close()
	for _, c := range conns {
		c.Close() // nothing more is wanted of it
	}
	s.idle.Wait()
}
