package rendezvous

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
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
	peers   map[int]*peer // that have joined
	full    bool          // all have
	foreign int           // callers that speak as ranks do, but not with this run's secret
	from    string        // the last of them
	verdict *failure.Verdict
	hears   func(rank int, report []byte) // what ranks tell; nil: nobody wants it yet
	stopped bool
	quit    chan struct{}
	done    chan struct{} // all ranks are done, or a verdict is sent
	closing sync.Once
	idle    sync.WaitGroup
}

// peer is one rank that has joined.
type peer struct {
	Member
	conn  net.Conn
	out   chan []byte
	heard time.Time
	is    string // what it is at
	left  bool   // its connection is over
}

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
		return nil, exitcode.Errorf(exitcode.Usage, "the port of %s is in use by another run, or by one that has just ended; choose another --master-port", c.Addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, exitcode.Errorf(exitcode.Usage, "%s is not an address of this host; %s 0 must run on the host of the master address", c.Addr, c.Called)
	case err != nil:
		return nil, exitcode.Errorf(exitcode.IO, "%s 0 cannot listen at %s: %w", c.Called, c.Addr, err)
	}
	s := &server{config: c, listener: listener, callers: NewUnproved(), entering: newUnproved(math.MaxInt), started: time.Now(), peers: map[int]*peer{}, quit: make(chan struct{}), done: make(chan struct{})}
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

// greet lets a rank in, and reads what it says until it leaves.
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
	if err == nil {
		if err = conn.SetReadDeadline(time.Now().Add(proofTime)); err == nil {
			m, err = readMessage(conn, fromCaller)
		}
	}
	s.entering.Remove(conn)
	if err != nil || m.Kind != kindJoin || m.Member == nil {
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if p := s.admit(conn, m.Member); p != nil {
		s.follow(p)
		return
	}
	if conn.SetReadDeadline(time.Now().Add(3*time.Second)) == nil { // until it has read why
		_, _ = io.CopyN(io.Discard, conn, fromCaller)
	}
}

// admit adds a rank; the last one completes the run. One that does not fit ends a
// run that is still gathering, since that cannot become complete; a run under way it
// does not disturb.
func (s *server) admit(conn net.Conn, m *Member) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What a stranger sends is cut to what a message may hold.
	m.Host, m.Addr, m.Report = cut(m.Host, longestName), cut(m.Addr, longestName), cut(m.Report, longestName)
	p := &peer{Member: *m, conn: conn, out: make(chan []byte, 16), heard: time.Now()}
	s.idle.Add(1)
	go s.write(p)
	// The run has ended or has a verdict, or the member does not fit: it stays outside, with the verdict if any.
	wrong := s.misfit(p)
	switch {
	case s.stopped:
		close(p.out)
		return nil
	case s.verdict != nil:
		p.say(verdictFrame(s.verdict))
		close(p.out)
		return nil
	case wrong != nil:
		p.say(verdictFrame(wrong))
		close(p.out)
		if !s.full {
			s.judge(wrong)
		}
		return nil
	}
	// The last member completes the run.
	s.peers[m.Rank] = p
	if len(s.peers) == s.config.World {
		s.announce()
	}
	return p
}

// misfit returns why a rank cannot be one of the run.
func (s *server) misfit(p *peer) *failure.Verdict {
	code := exitcode.Usage
	no := func(format string, a ...any) *failure.Verdict {
		return &failure.Verdict{Kind: failure.Own, Rank: p.Rank, Code: code, Text: fmt.Sprintf(format, a...), Time: time.Now()}
	}
	other := s.peers[p.Rank]
	switch {
	case p.World != s.config.World:
		return no("%[1]s was started as one of %[2]d %[4]ss, %[4]s 0 as one of %[3]d: start all %[4]ss of a run alike", p, p.World, s.config.World, s.config.Called)
	case p.Rank < 0 || p.Rank >= s.config.World:
		return no("%s: %ss of this run are 0 to %d", p, s.config.Called, s.config.World-1)
	case s.config.Loose && s.full:
		code = exitcode.Again
		return no("%s is too late: the others have started without it", p)
	case other != nil:
		return no("two processes have the same %[1]s: %[2]s and %[3]s; give each process its own %[1]s, and each run its own port", s.config.Called, other, p)
	case s.full:
		return no("%s is too late: the others have started without it", p)
	}
	for _, what := range slices.Sorted(maps.Keys(s.config.Alike)) {
		if mine, theirs := s.config.Alike[what], p.Alike[what]; mine != theirs {
			return no("%[1]s has not the same %[2]s as %[5]s 0: %[3]s there, %[4]s here; copy one build to all hosts and start all %[5]ss alike", p, what, cut(theirs, longestName), cut(mine, longestName), s.config.Called)
		}
	}
	return nil
}

// announce gives every rank the list of all; nobody joins any more.
func (s *server) announce() {
	s.full = true
	var id [8]byte
	rand.Read(id[:]) // never fails
	var members []Member
	for rank := range s.config.World {
		var m Member // empty where nobody has come
		if p := s.peers[rank]; p != nil {
			m = p.Member
		}
		members = append(members, m)
	}
	joined := mustFrame(&message{Kind: kindJoined, Run: hex.EncodeToString(id[:]), List: pack(members)})
	for _, p := range s.peers {
		p.heard = time.Now()
		p.say(joined)
	}
}

// say queues a message; a rank that does not read them gets no more.
func (p *peer) say(frame []byte) {
	select {
	case p.out <- frame:
	default:
	}
}

// mustFrame is for messages of the server's own making.
func mustFrame(m *message) []byte {
	bytes, err := frame(m)
	if err != nil {
		panic(err)
	}
	return bytes
}

func verdictFrame(v *failure.Verdict) []byte {
	return mustFrame(&message{Kind: kindVerdict, Verdict: v})
}

var (
	beatFrame = mustFrame(&message{Kind: kindBeat})
	askFrame  = mustFrame(&message{Kind: kindAsk})
)

// write sends what is queued for a rank, then no more.
func (s *server) write(p *peer) {
	defer s.idle.Done()
	for frame := range p.out {
		if p.conn.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			break
		}
		if _, err := p.conn.Write(frame); err != nil {
			break
		}
	}
	if c, ok := p.conn.(*net.TCPConn); ok {
		_ = c.CloseWrite() // it may be gone
	}
	for range p.out { // nobody is to block on it
	}
}

// follow reads what a rank says.
func (s *server) follow(p *peer) {
	for {
		m, err := readMessage(p.conn, fromRank)
		s.mu.Lock()
		p.heard = time.Now()
		switch {
		case err != nil:
			s.leave(p, p.verdict(failure.Death, exitcode.IO, "died: its connection was lost"+p.at()))
		case m.Kind == kindBye:
			s.leave(p, nil)
		case m.Kind == kindBeat && m.At != "":
			p.is = cut(m.At, longestName)
		case m.Kind == kindFail && m.Verdict != nil && m.Verdict.Rank < s.config.World:
			s.judge(m.Verdict)
		}
		left, hears := p.left, s.hears
		s.mu.Unlock()
		if err == nil && hears != nil && len(m.Report) > 0 {
			hears(p.Rank, m.Report)
		}
		if left {
			return
		}
	}
}

func (p *peer) at() string {
	if p.is == "" {
		return ""
	}
	return "; it was in " + p.is
}

// leave notes that a rank is gone, and why where that ends the run.
func (s *server) leave(p *peer, why *failure.Verdict) {
	if p.left {
		return
	}
	p.left = true
	if (s.config.Fewer || s.config.Loose) && !s.full {
		delete(s.peers, p.Rank) // it may come again
		close(p.out)
		return
	}
	if why != nil && !s.stopped && !s.config.Loose {
		s.judge(why)
	}
	close(p.out)
	s.peers[p.Rank] = p
	s.checkDone()
}

// judge makes the verdict, unless there is one, and sends it to all.
func (s *server) judge(v *failure.Verdict) {
	if s.verdict != nil {
		return
	}
	s.verdict = v
	for _, p := range s.peers {
		if !p.left {
			p.say(verdictFrame(v))
		}
	}
}

// checkDone closes done when no rank is left to serve.
func (s *server) checkDone() {
	for _, p := range s.peers {
		if !p.left && p.Rank != 0 {
			return
		}
	}
	if s.full || s.verdict != nil {
		s.closing.Do(func() { close(s.done) })
	}
}

// watch beats, and finds ranks that are late or silent.
func (s *server) watch() {
	defer s.idle.Done()
	// Three clocks: heartbeats, whether enough hosts are here to start without the others, the time limit.
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	asking := time.NewTicker(enoughEvery)
	defer asking.Stop()
	if s.config.Enough == nil {
		asking.Stop()
	}
	deadline := time.NewTimer(s.config.Timeout)
	defer deadline.Stop()
	last, waiting := time.Now(), newLongWait(s.config.Notes)
	for {
		select {
		case <-s.quit:
			return
		case <-deadline.C:
			s.mu.Lock()
			s.late()
			s.mu.Unlock()
		case <-asking.C:
			s.enough()
		// A tick that comes late means that this process was stopped: silence of others proves nothing then.
		case now := <-tick.C:
			s.mu.Lock()
			s.expire(now, now.Sub(last) > 5*beatEvery)
			missing, strangers := s.missing(), s.strangers()
			s.mu.Unlock()
			last = now
			if len(missing) > 0 {
				waiting.say(now, "%s 0 is still waiting for %d of %d %[1]ss, number %[4]s; the limit is %[5]v%s", s.config.Called, len(missing), s.config.World, ranges(missing), s.config.Timeout, strangers)
			}
		}
	}
}

// enoughEvery is how often rank 0 asks whether those that have come are enough.
const enoughEvery = 100 * time.Millisecond

// enough continues with those that have come, where they are (Config.Enough).
func (s *server) enough() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || s.verdict != nil || s.stopped {
		return
	}
	var here []Member
	for _, rank := range slices.Sorted(maps.Keys(s.peers)) {
		here = append(here, s.peers[rank].Member)
	}
	if s.config.Enough(here) {
		s.announce()
	}
}

// late ends the wait for ranks that have not come.
func (s *server) late() {
	missing := s.missing()
	switch {
	case len(missing) == 0 || s.full || s.verdict != nil:
	case s.config.Fewer:
		s.announce()
	default:
		s.judge(&failure.Verdict{Kind: failure.Own, Rank: missing[0], Code: exitcode.IO, Time: time.Now(), Text: fmt.Sprintf("%d of %d %ss did not join within %v: %s; read their output where they were started%s",
			len(missing), s.config.World, s.config.Called, s.config.Timeout, ranges(missing), s.strangers())})
	}
}

// strangers says what may keep ranks out: a secret that is not the same on all hosts.
func (s *server) strangers() string {
	if s.foreign == 0 {
		return ""
	}
	return fmt.Sprintf("; %d connections did not have this run's secret, the last from %s: MONOTRON_SECRET must be the same on all hosts", s.foreign, s.from)
}

// missing are the ranks that the run still waits for.
func (s *server) missing() (ranks []int) {
	if s.full {
		return nil
	}
	for r := range s.config.World {
		if s.peers[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// expire beats to all and judges who is silent; not after a stop of this process.
func (s *server) expire(now time.Time, wasStopped bool) {
	for _, p := range s.peers {
		if p.left {
			continue
		}
		if wasStopped {
			p.heard = now
		}
		if silent := now.Sub(p.heard); s.full && !s.config.Loose && s.config.lost(silent, &p.Member, &s.peers[0].Member) {
			s.judge(p.verdict(failure.Silence, exitcode.IO, fmt.Sprintf("has not responded for %d s%s: it is stopped, or its host or network failed", int(silent.Seconds()), p.at())))
		}
		p.say(beatFrame)
	}
}

// lost reports whether a member that has been silent for so long counts as lost, as seen from
// another. One on the same host that only waits for a processor has longer: where hundreds of
// processes share a few, a turn can take longer than a silence.
func (c *Config) lost(silent time.Duration, m, from *Member) bool {
	if silent <= c.Silence {
		return false
	}
	return silent > starvedTimes*c.Silence || m.Host != from.Host || !starved(m.PID)
}

// starvedTimes is how many silences a rank has that wants a processor and gets none.
const starvedTimes = 15

// drain waits until all other ranks are done; after a verdict, a short while,
// for them to hear it.
func (s *server) drain() {
	var limit <-chan time.Time
	for {
		s.mu.Lock()
		if s.verdict != nil && limit == nil {
			limit = time.After(3 * time.Second)
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
	for _, p := range s.peers {
		if !p.left {
			p.left = true
			close(p.out)
		}
	}
	var conns []net.Conn
	for _, p := range s.peers {
		conns = append(conns, p.conn)
	}
	s.mu.Unlock()
	s.listener.Close() // nothing more is wanted of it
	s.callers.Close()
	s.entering.Close()
	for _, c := range conns {
		c.Close() // nothing more is wanted of it
	}
	s.idle.Wait()
}

// starved reports whether a process of this host wants a processor and is not given one, or
// runs: it is not stopped, and will answer once it has its turn.
func starved(pid int) bool { return system.AnyThread(pid, 'R') }
