package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"monotron/internal/exitcode"
)

// Join waits until all ranks of the run are there. Errors name what is missing
// or does not fit; their code is exitcode.Usage or exitcode.IO.
func Join(ctx context.Context, c Config) (*Session, error) {
	if c.Rank < 0 || c.World < 1 || c.Rank >= c.World {
		return nil, exitcode.Errorf(exitcode.Usage, "rank %d of %d ranks is not possible: ranks are numbered from 0", c.Rank, c.World)
	}
	if len(c.Secret) == 0 {
		return nil, exitcode.Errorf(exitcode.Internal, "rendezvous: internal error: no secret was given; report this, and include the command line")
	}
	if c.Timeout <= 0 {
		c.Timeout = usualTimeout
	}
	if c.Silence <= 0 {
		c.Silence = usualSilence
	}
	if c.Notes == nil {
		c.Notes = io.Discard
	}
	c.Called = cmp.Or(c.Called, "rank")
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+writeTime) // the server's verdict comes first
	defer cancel()
	s := &Session{config: c, lost: make(chan struct{}), ended: make(chan struct{})}
	if c.Rank == 0 {
		var err error
		if s.server, err = serve(c); err != nil {
			return nil, err
		}
		if c.World == 1 {
			s.config.Addr = s.server.listener.Addr().String() // of any port
		}
	}
	if err := s.join(ctx); err != nil {
		if s.server != nil {
			s.server.giveUp(err)
		}
		s.relay.close()
		return nil, err
	}
	s.heard = time.Now()
	s.idle.Add(2)
	go s.listen()
	go s.beat()
	return s, nil
}

// join connects and waits for the list of all. A connection that ends before the server has said
// anything was dropped among too many, and is made again.
func (s *Session) join(ctx context.Context) error {
	var pauses Backoff
	for end := time.Now().Add(DropTime); ; {
		var err error
		if s.conn = s.host(); s.conn == nil {
			s.conn, err = s.dial(ctx)
		}
		if err != nil {
			return err
		}
		s.from = newReader(s.conn)
		heard, err := s.enter(ctx)
		if err != nil {
			s.relay.disconnect()
		}
		if err == nil || heard || ctx.Err() != nil || !isClosed(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.Next()):
		}
	}
}

// enter says who this rank is, and waits on its connection for the list of all; heard: the server
// has said something.
func (s *Session) enter(ctx context.Context) (heard bool, err error) {
	c, conn := &s.config, s.conn
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // what comes of it is read below
	defer stop()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	me := Member{Rank: c.Rank, World: c.World, Addr: reachable(c.Data, c.Addr, conn), Host: cut(host, longestName), PID: os.Getpid(), Alike: c.Alike, Called: c.Called, Report: cut(c.Report, longestName)}
	if err := s.send(&message{Kind: kindJoin, Member: &me}); err != nil {
		return false, s.joinError(ctx, err)
	}
	s.relay.connect(s.send)
	for ; ; heard = true {
		m, err := s.from.message(fromServer(c.World))
		switch {
		case err != nil:
			return heard, s.joinError(ctx, err)
		case s.relay.deliver(m, s.from.frame):
		case m.Kind == kindBeat:
			s.above, s.aboveAt = m.From, m.At
		case (m.Kind == kindVerdict || m.Kind == kindRefused) && m.Verdict != nil:
			conn.Close() // nothing more is wanted of it
			return true, m.Verdict.Err()
		case m.Kind == kindJoined:
			return true, s.meet(ctx, m)
		}
	}
}

// meet takes the list of all.
func (s *Session) meet(ctx context.Context, m *message) (err error) {
	s.run = m.Run
	if s.members, err = unpack(m.List, s.config.World); err != nil {
		return s.joinError(ctx, err)
	}
	for i := range s.members {
		s.members[i].Called = s.config.Called
	}
	return nil
}

func (s *Session) joinError(ctx context.Context, err error) error {
	s.conn.Close() // it has failed already
	if ctx.Err() != nil {
		return exitcode.Errorf(exitcode.IO, "%s %d could not join the run at %s: %w", s.config.Called, s.config.Rank, s.config.Addr, context.Cause(ctx))
	}
	if s.conn.RemoteAddr().Network() == "unix" {
		return exitcode.Errorf(exitcode.IO, "before all %[1]ss had joined, %[1]s %[2]d lost the connection to its relay, another %[1]s of this host (%[3]w); read the output of the other %[1]ss of this host", s.config.Called, s.config.Rank, err)
	}
	return exitcode.Errorf(exitcode.IO, "before all %[1]ss had joined, %[1]s %[2]d lost the connection to the server of %[1]s 0 at %[3]s (%[4]w); read the output of %[1]s 0", s.config.Called, s.config.Rank, s.config.Addr, err)
}

// reachable fills the host of the address at which this rank takes tensors.
func reachable(data, addr string, c net.Conn) string {
	host, port, err := net.SplitHostPort(data)
	if err != nil || host != "" {
		return data
	}
	here, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil { // the connection stays on this host
		here = Towards(addr)
	}
	return net.JoinHostPort(here, port)
}

// Towards is this host's address on the way to addr, where peers reach it, too.
func Towards(addr string) string {
	c, err := net.Dial("udp", addr) // sends nothing
	if err != nil {
		return ""
	}
	defer c.Close() // nothing was sent
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return ""
	}
	return host
}

// dial reaches the server, which may not be there yet.
func (s *Session) dial(ctx context.Context) (net.Conn, error) {
	addr, first := s.config.Addr, s.config.Called+" 0"
	if OwnName(addr, s.config.Rank == 0) {
		addr = onLoopback(addr)
	}
	dialer := net.Dialer{Timeout: DialTime}
	waiting := newLongWait(s.config.Notes)
	var pauses Backoff
	end := time.Now().Add(DropTime)
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			if err = Call(conn, s.config.Secret); err == nil {
				return conn, nil
			}
			conn.Close() // it has failed already
			if foreign := errors.Is(err, ErrSecret) || errors.Is(err, ErrDropped) && time.Now().After(end); foreign && ctx.Err() == nil {
				return nil, exitcode.Errorf(exitcode.Usage, "the server at %s is not %s of this run, because it does not have the secret of the run. "+
					"Another job may use this port (choose another --master-port), or MONOTRON_SECRET differs between the hosts", addr, first)
			}
		}
		select {
		case <-ctx.Done():
			return nil, exitcode.Errorf(exitcode.IO, "%s cannot be reached at %s: %w; check that it runs, that the address is correct and that no firewall blocks it", first, addr, err)
		case <-time.After(pauses.Next()):
			waiting.say(time.Now(), "%s %d is still waiting for %s at %s: %v", s.config.Called, s.config.Rank, first, addr, err)
		}
	}
}
