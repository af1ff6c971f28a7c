package watch

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"monotron/fault"
	"monotron/mpu/comm/rendezvous"
)

// Server takes the beats of ranks that are processes.
type Server struct {
	*Watcher
	listener net.Listener
	key      []byte

	gate    sync.Mutex
	callers []net.Conn       // that have not proved who they are, oldest first
	conns   map[int]net.Conn // of ranks
	closed  bool
	busy    sync.WaitGroup
}

const (
	quiet     = time.Minute // a rank's connection without a word is dropped
	writing   = 5 * time.Second
	strangers = 1024 // beyond it the oldest connection without proof is dropped
)

// Listen opens the watcher's port on a host's address and hears whoever proves to
// know key. act ends the run when a verdict is made.
func Listen(host string, key []byte, world int, s Settings, act func(*Verdict)) (*Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fault.Errorf(fault.IO, "no port to take heartbeats at: %w", err)
	}
	r := &Server{listener: listener, key: key, conns: map[int]net.Conn{}}
	r.Watcher = NewWatcher(world, s, r.askRank, act)
	r.busy.Go(r.accept)
	return r, nil
}

// Port is where the watcher listens.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of file descriptors, for one
			continue
		}
		if !s.keep(conn) {
			return
		}
		s.busy.Go(func() { s.serve(conn) })
	}
}

// keep remembers a caller; false: too late.
func (s *Server) keep(conn net.Conn) bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		conn.Close() // nobody hears it
		return false
	}
	s.callers = append(s.callers, conn)
	if len(s.callers) > strangers {
		s.callers[0].Close() // a stranger
		s.callers = s.callers[1:]
	}
	return true
}

// serve hears one connection to its end.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close() // nothing more is wanted of it
	rank := -1
	if rendezvous.Answer(conn, s.key) == nil {
		rank = s.greet(conn)
	}
	s.settle(conn, rank)
	if rank < 0 {
		return
	}
	for {
		if conn.SetReadDeadline(time.Now().Add(quiet)) != nil {
			return
		}
		m, err := readMessage(conn)
		if err != nil || (m.Hello != nil && m.Hello.Rank != rank) {
			return
		}
		s.hear(rank, m)
	}
}

// settle notes whose connection it is; a rank that has called again drops its old one.
func (s *Server) settle(conn net.Conn, rank int) {
	s.gate.Lock()
	defer s.gate.Unlock()
	if i := slices.Index(s.callers, conn); i >= 0 {
		s.callers = slices.Delete(s.callers, i, i+1)
	}
	switch {
	case s.closed:
		conn.Close() // nobody hears it
	case rank >= 0:
		if old := s.conns[rank]; old != nil {
			old.Close() // nothing more is wanted of it
		}
		s.conns[rank] = conn
	}
}

// greet reads a rank's hello; -1: it is none.
func (s *Server) greet(conn net.Conn) int {
	if conn.SetReadDeadline(time.Now().Add(quiet)) != nil {
		return -1
	}
	m, err := readMessage(conn)
	if err != nil || m.Hello == nil || m.Hello.Rank < 0 || m.Hello.Rank >= len(s.ranks) || m.Hello.World != len(s.ranks) {
		return -1
	}
	s.hear(m.Hello.Rank, m)
	return m.Hello.Rank
}

// askRank asks for a report.
func (s *Server) askRank(rank int) {
	s.gate.Lock()
	conn := s.conns[rank]
	s.gate.Unlock()
	if conn == nil || conn.SetWriteDeadline(time.Now().Add(writing)) != nil {
		return
	}
	_ = writeMessage(conn, &message{Ask: true}) // its silence shows
}

// Close ends the port and the watching.
func (s *Server) Close() {
	s.listener.Close() // nothing more is wanted of it
	s.gate.Lock()
	s.closed = true
	for _, c := range s.callers {
		c.Close() // nothing more is wanted of it
	}
	for _, c := range s.conns {
		c.Close() // nothing more is wanted of it
	}
	s.gate.Unlock()
	s.Watcher.Close()
	s.busy.Wait()
}
