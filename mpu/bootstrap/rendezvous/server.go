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
	lines   map[*line]bool // that have not ended
	peers   []*peer        // that have joined, by rank
	came    int            // how many these are
	staying int            // of these, other than rank 0, that have not left
	full    bool           // all have joined
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
		return nil, exitcode.Errorf(exitcode.Usage, "the port of %s is in use by another run, or by one that has just ended; choose another --master-port", c.Addr)
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

// admit adds a rank; the last one completes the run. One that does not fit ends a
// run that is still gathering, since that cannot become complete; a run under way it
// does not disturb. The caller holds the lock.
func (s *server) admit(l *line, m *message) bool {
	if m.Seat != len(l.seats) || m.Member == nil || m.Seat >= s.config.World { // no rank sends that
		return false
	}
	// What a stranger sends is cut to what a message may hold.
	who := *m.Member
	who.Host, who.Addr, who.Report = cut(who.Host, longestName), cut(who.Addr, longestName), cut(who.Report, longestName)
	p := &peer{Member: who, line: l, seat: m.Seat, heard: time.Now()}
	l.seats = append(l.seats, nil)
	// The run has ended or has a verdict, or the member does not fit: it stays outside, with the verdict if any.
	wrong := s.misfit(p)
	switch {
	case s.stopped:
		return false
	case s.verdict != nil:
		l.send(refusal(p.seat, s.verdict))
		return false
	case wrong != nil:
		l.send(refusal(p.seat, wrong))
		if !s.full {
			s.judge(wrong)
		}
		return false
	}
	// The last member completes the run.
	l.seats[p.seat], s.peers[p.Rank] = p, p
	s.came++
	if p.Rank != 0 {
		s.staying++
	}
	if s.came == s.config.World {
		s.announce()
	}
	return true
}

// misfit returns why a rank cannot be one of the run.
func (s *server) misfit(p *peer) *failure.Verdict {
	code := exitcode.Usage
	no := func(format string, a ...any) *failure.Verdict {
		return &failure.Verdict{Kind: failure.Own, Rank: p.Rank, Code: code, Text: fmt.Sprintf(format, a...), Time: time.Now()}
	}
	var other *peer
	if p.Rank >= 0 && p.Rank < len(s.peers) {
		other = s.peers[p.Rank]
	}
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
	s.toAll(mustFrame(&message{Kind: kindJoined, Run: hex.EncodeToString(id[:]), List: pack(members)}))
	now := time.Now()
	for l := range s.lines {
		l.heard = now
	}
	for _, p := range s.peers {
		if p != nil {
			p.heard = now
		}
	}
}

// toAll sends a message to all ranks.
func (s *server) toAll(frame []byte) {
	for l := range s.lines {
		l.send(frame)
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

func beatFrame(from int, at string) []byte {
	return mustFrame(&message{Kind: kindBeat, From: from, At: at})
}

func askFrame(seat int) []byte { return mustFrame(&message{Kind: kindAsk, Seat: seat}) }

// refusal is for the rank of one seat.
func refusal(seat int, v *failure.Verdict) []byte {
	return mustFrame(&message{Kind: kindRefused, Seat: seat, Verdict: v})
}

// follow reads what the ranks of a connection say, until all have left.
func (s *server) follow(l *line) {
	for {
		m, err := l.from.message(fromRank)
		s.mu.Lock()
		l.heard = time.Now()
		if err != nil {
			s.lose(l)
		} else {
			s.take(l, m)
		}
		left, hears := l.hasLeft(), s.hears
		s.mu.Unlock()
		if err != nil {
			s.drop(l)
			return
		}
		if m.Kind == kindReport {
			m.beats = []Beat{{Seat: m.Seat, Report: m.Report}}
		}
		for _, b := range m.beats {
			if p := l.at(b.Seat); p != nil && hears != nil && len(b.Report) > 0 {
				hears(p.Rank, b.Report)
			}
		}
		if left {
			s.drop(l)
			return
		}
	}
}

// at is the rank of a seat; nil: there is none.
func (l *line) at(seat int) *peer {
	if seat < 0 || seat >= len(l.seats) {
		return nil
	}
	return l.seats[seat]
}

func (l *line) hasLeft() bool {
	return !slices.ContainsFunc(l.seats, func(p *peer) bool { return p != nil && !p.left })
}

// take is what a rank says. The caller holds the lock.
func (s *server) take(l *line, m *message) {
	if m.Kind == kindJoin {
		s.admit(l, m)
		return
	}
	for _, b := range m.beats {
		if p := l.at(b.Seat); p != nil {
			p.heard = l.heard
			if len(b.At) > 0 && string(b.At) != p.is {
				p.is = cut(string(b.At), longestName)
			}
		}
	}
	p := l.at(m.Seat)
	if m.Kind == kindBeat || p == nil {
		return
	}
	p.heard = l.heard
	switch {
	case m.Kind == kindGone:
		s.leave(p, p.died())
	case m.Kind == kindBye:
		s.leave(p, nil)
	case m.Kind == kindFail && m.Verdict != nil && m.Verdict.Rank < s.config.World:
		s.judge(m.Verdict)
	}
}

func (p *peer) at() string {
	if p.is == "" {
		return ""
	}
	return "; it was in " + p.is
}

func (p *peer) died() *failure.Verdict {
	return p.verdict(failure.Death, exitcode.IO, "died: its connection was lost"+p.at()+p.others())
}

// others says which ranks are lost with the one that relays for them.
func (p *peer) others() string {
	n := 0
	for _, other := range p.line.seats {
		if other != nil && other != p && !other.left {
			n++
		}
	}
	if p.seat != 0 || n == 0 {
		return ""
	}
	return fmt.Sprintf("; other ranks of its host that it connected: %d", n)
}

// lose notes that the ranks of a connection are gone. The one that has made it is to blame: for the others it relays,
// also after its own last word.
func (s *server) lose(l *line) {
	if l.hasLeft() {
		return
	}
	var why *failure.Verdict
	for _, p := range l.seats {
		if p == nil {
			continue
		}
		if why == nil {
			why = p.died()
		}
		s.leave(p, why)
	}
}

// leave notes that a rank is gone, and why where that ends the run.
func (s *server) leave(p *peer, why *failure.Verdict) {
	if p.left {
		return
	}
	p.left = true
	if p.Rank != 0 {
		s.staying--
	}
	if (s.config.Fewer || s.config.Loose) && !s.full {
		s.peers[p.Rank], s.came = nil, s.came-1 // it may come again
		return
	}
	if why != nil && !s.stopped && !s.config.Loose {
		s.judge(why)
	}
	s.checkDone()
}

// judge makes the verdict, unless there is one, and sends it to all.
func (s *server) judge(v *failure.Verdict) {
	if s.verdict == nil {
		s.verdict = v
		s.toAll(verdictFrame(v))
	}
}

// checkDone closes done when no rank is left to serve.
func (s *server) checkDone() {
	if s.staying == 0 && (s.full || s.verdict != nil) {
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
	for _, p := range s.peers {
		if p != nil {
			here = append(here, p.Member)
		}
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

// beatsPerSilence is how often rank 0 beats, at least, before it counts as silent: seldom, as that is a write to each connection.
const beatsPerSilence = 8

// expire beats to all and judges who is silent; not after a stop of this process.
func (s *server) expire(now time.Time, wasStopped bool) {
	if now.Sub(s.beaten) > s.config.Silence/beatsPerSilence {
		s.beaten = now
		s.toAll(beatFrame(0, ""))
	}
	watched := s.full && !s.config.Loose && s.verdict == nil
	if !watched && !wasStopped {
		return
	}
	for l := range s.lines {
		if wasStopped {
			l.heard = now
		}
	}
	for _, p := range s.peers {
		switch {
		case p == nil || p.left:
		case wasStopped:
			p.heard = now
		case s.verdict == nil && now.Sub(p.heard) > s.config.Silence:
			s.silent(p, now)
		}
	}
}

// silent judges a rank that has not been heard. Where nothing at all comes over its connection, that is the fault of the
// rank that has made it.
func (s *server) silent(p *peer, now time.Time) {
	since := p.heard
	if first := p.line.seats[0]; first != nil && now.Sub(p.line.heard) > s.config.Silence {
		p, since = first, p.line.heard
	}
	if silent := now.Sub(since); s.config.lost(silent, &p.Member, &s.peers[0].Member) {
		s.judge(p.verdict(failure.Silence, exitcode.IO, fmt.Sprintf("has not responded for %d s%s: it is stopped, or its host or network failed%s", int(silent.Seconds()), p.at(), p.others())))
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

// starved reports whether a process of this host wants a processor and is not given one, or
// runs: it is not stopped, and will answer once it has its turn.
func starved(pid int) bool { return system.AnyThread(pid, 'R') }
