package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// Config says who joins what. The zero durations are the usual ones.
type Config struct {
	Rank, World int
	Addr        string            // host:port of rank 0's server
	Secret      []byte            // shared by the ranks of this run and nobody else
	Data        string            // host:port where this rank takes tensors; host "": the one this rank reaches Addr from
	Alike       map[string]string // what must be the same on all ranks, by what it is called
	Timeout     time.Duration     // until all have joined; 0: usualTimeout
	Silence     time.Duration     // of a rank, until it counts as lost; 0: usualSilence
	Fewer       bool              // at Timeout, continue with those that have come; the others' Members are empty
	Called      string            // what one that joins is, in messages; "rank"
	Report      string            // passed on to all in Member.Report; up to longestName bytes
	Notes       io.Writer         // hears whom this rank waits for; nil: nobody

	// Of members that outlive what they have met for, as launchers do.
	Listener *Listener                // of rank 0: where it serves, instead of Addr; it stays open
	Enough   func(here []Member) bool // on rank 0: whether to continue without those that have not come; nil: not before Timeout
	Loose    bool                     // who leaves, dies or is silent ends nothing; who comes late is asked to come again

	unproved int // connections without proof at once, of tests; 0: by the files that may be open
}

// Member is one rank as the others know it.
type Member struct {
	Rank, World int
	Addr        string // where it takes tensors
	Host        string
	PID         int               // 0: it has not come (Config.Fewer)
	Alike       map[string]string `json:",omitempty"`
	Called      string            `json:",omitempty"` // "": rank
	Report      string            `json:",omitempty"` // Config.Report
}

func (m *Member) String() string {
	return fmt.Sprintf("%s %d (process %d on %s)", cmp.Or(m.Called, "rank"), m.Rank, m.PID, m.Host)
}

// verdict blames the member for something.
func (m *Member) verdict(kind failure.Kind, code exitcode.Code, what string) *failure.Verdict {
	return &failure.Verdict{Kind: kind, Rank: m.Rank, PID: m.PID, Host: m.Host, Code: code, Text: m.String() + " " + what, Time: time.Now()}
}

// Session is a rank's membership in a run.
type Session struct {
	config  Config
	server  *server // of rank 0
	relay   *relay  // of the rank that connects those of its host; nil: this one does not
	conn    net.Conn
	from    *reader
	run     string
	members []Member

	writing sync.Mutex
	mu      sync.Mutex // of all below
	above   int        // the rank at the other end of the connection
	aboveAt string     // what that one is at

	say   func() (at string, report []byte) // what beats carry; nil: nothing yet
	asked func()
	heard time.Time
	over  bool // closed here
	lost  chan struct{}
	err   *failure.Verdict
	ended chan struct{} // stops the beats
	idle  sync.WaitGroup
}

const (
	usualTimeout = 10 * time.Minute
	usualSilence = 20 * time.Second
	beatEvery    = time.Second
	writeTime    = 10 * time.Second // for one message
	lastWords    = 3 * time.Second  // until all have heard a verdict
	// DialTime is how long one attempt to connect may take. Where thousands of ranks connect at once the kernel of rank 0's
	// host drops some, and that of the rank tries them again after 1, 3, 7, 15 and 31 s.
	DialTime = 4 * time.Second
)

// Join waits until all ranks of the run are there. Errors name what is missing
// or does not fit; their code is exitcode.Usage or exitcode.IO.
func Join(ctx context.Context, c Config) (*Session, error) {
	if c.Rank < 0 || c.World < 1 || c.Rank >= c.World {
		return nil, exitcode.Errorf(exitcode.Usage, "rank %d of %d ranks is not possible: ranks are numbered from 0", c.Rank, c.World)
	}
	if len(c.Secret) == 0 {
		return nil, exitcode.Errorf(exitcode.Internal, "rendezvous: the secret is missing")
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
		return exitcode.Errorf(exitcode.IO, "%s %d gave up joining the run at %s: %w", s.config.Called, s.config.Rank, s.config.Addr, context.Cause(ctx))
	}
	if s.conn.RemoteAddr().Network() == "unix" {
		return exitcode.Errorf(exitcode.IO, "%[1]s %[2]d lost the %[1]s of this host that connects it to %[1]s 0, before all had joined (%[3]w); read the output of the other %[1]ss of this host", s.config.Called, s.config.Rank, err)
	}
	return exitcode.Errorf(exitcode.IO, "%[1]s %[2]d lost %[1]s 0's server at %[3]s before all had joined (%[4]w); read the output of %[1]s 0", s.config.Called, s.config.Rank, s.config.Addr, err)
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
				return nil, exitcode.Errorf(exitcode.Usage, "the server at %s is not %s of this run: it does not have the run's secret. "+
					"Another job may have the port (choose another --master-port), or MONOTRON_SECRET differs between the hosts", addr, first)
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

// Members are all ranks, by number.
func (s *Session) Members() []Member { return s.members }

// Run names the run, alike on all ranks.
func (s *Session) Run() string { return s.run }

// Key is what ranks of this run prove to each other, other than here.
func (s *Session) Key() []byte { return proof(s.config.Secret, "run", []byte(s.run), nil) }

// Speak has every beat carry what say gives: what this rank is at, for a verdict on it,
// and what whoever hears on rank 0 is to know. asked is called when rank 0 asks.
func (s *Session) Speak(say func() (at string, report []byte), asked func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say, s.asked = say, asked
}

// Tell sends a report to the listener on rank 0 between two beats.
func (s *Session) Tell(report []byte) error {
	return s.tell(&message{Kind: kindReport, Report: report})
}

// Hear gives rank 0 what ranks tell from now on.
func (s *Session) Hear(heard func(rank int, report []byte)) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.hears = heard
}

// Ask has rank 0 ask a rank.
func (s *Session) Ask(rank int) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if p := s.server.peers[rank]; p != nil && !p.left {
		p.line.send(askFrame(p.seat))
	}
}

// Lost is closed when the run is at its end by a verdict; Err has it.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err is the verdict; nil: all is well.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return s.err.Err()
}

// Fail reports to all ranks that this one cannot continue. It returns the verdict: that
// of whoever was first.
func (s *Session) Fail(err error) error { return s.Judge(failure.Of(s.config.Rank, err)) }

// Judge ends the run with a verdict on whatever rank. It returns the verdict that all
// get: the first.
func (s *Session) Judge(v *failure.Verdict) error {
	report := v.Brief()
	if s.tell(&message{Kind: kindFail, Verdict: report}) != nil {
		s.lose(report)
	}
	select { // the server answers with the first
	case <-s.lost:
	case <-time.After(3 * time.Second):
		s.lose(report)
	}
	return s.Err()
}

// Close says that this rank is done. Rank 0 stays until all others are, too, and one that relays until those of its host are.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return nil
	}
	s.over = true
	s.mu.Unlock()
	err := s.tell(&message{Kind: kindBye})
	if s.relay != nil {
		s.relay.drain(s.lost)
	}
	close(s.ended) // rank 0 hears nothing more from its own server while others still finish
	if s.server != nil {
		s.server.drain()
	}
	s.relay.close()
	s.conn.Close() // nothing more is wanted of it
	s.idle.Wait()
	if s.server != nil {
		s.server.stop()
	}
	if verdict := s.Err(); verdict != nil {
		return verdict
	}
	return exitcode.With(exitcode.IO, err)
}

// tell sends a message of this rank, after what the ranks that it relays for have said.
func (s *Session) tell(m *message) error {
	if s.relay != nil {
		return s.relay.say(m)
	}
	return s.send(m)
}

// send writes to the connection.
func (s *Session) send(m *message) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	return writeMessage(s.conn, m)
}

func (s *Session) lose(v *failure.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = v
		close(s.lost)
		s.relay.verdict(verdictFrame(v))
	}
}

// listen takes what the server says.
func (s *Session) listen() {
	defer s.idle.Done()
	for {
		m, err := s.from.message(fromServer(s.config.World))
		s.mu.Lock()
		over, asked := s.over, s.asked
		s.heard = time.Now()
		if err == nil && m.Kind == kindBeat {
			s.above, s.aboveAt = m.From, m.At
		}
		s.mu.Unlock()
		switch {
		case err != nil && over && !s.relay.staying():
			return
		case err == nil && s.relay.deliver(m, s.from.frame):
		case err != nil:
			s.lose(s.blame(failure.Death, fmt.Sprintf("died: its connection was lost (%v)", err)))
			return
		case m.Kind == kindAsk && asked != nil:
			asked()
		case m.Kind == kindVerdict && m.Verdict != nil:
			s.lose(m.Verdict)
		}
	}
}

// blame is the verdict on the rank that this one is connected with.
func (s *Session) blame(kind failure.Kind, what string) *failure.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aboveAt != "" {
		what += "; it was in " + s.aboveAt
	}
	return s.neighbour().verdict(kind, exitcode.IO, what)
}

// neighbour is the rank at the other end of the connection. The caller holds the lock.
func (s *Session) neighbour() *Member {
	if s.above < 0 || s.above >= len(s.members) {
		return &s.members[0]
	}
	return &s.members[s.above]
}

// beat says once a second that this rank lives, and notices when the one that it is connected with does not.
func (s *Session) beat() {
	defer s.idle.Done()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		say, over, now := s.say, s.over, time.Now()
		if now.Sub(last) > 5*beatEvery {
			s.heard = now // this process was stopped itself
		}
		last = now
		silent, above := now.Sub(s.heard), s.neighbour()
		s.mu.Unlock()
		if s.config.lost(silent, above, &s.members[s.config.Rank]) {
			s.lose(s.blame(failure.Silence, fmt.Sprintf("has not responded for %d s: it is stopped, or its host or network failed", int(silent.Seconds()))))
			return
		}
		var own Beat
		if say != nil && !over {
			at, report := say()
			own.At, own.Report = []byte(at), report
		}
		switch {
		case s.relay == nil:
			_ = s.send(&message{Kind: kindBeat, beats: []Beat{own}}) // a broken connection shows in listen
		case over:
			s.relay.beat(nil)
		default:
			s.relay.beat(&own)
		}
	}
}

// ranges writes numbers as "1, 3-5".
func ranges(numbers []int) (text string) {
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if text != "" {
			text += ", "
		}
		text += strconv.Itoa(numbers[i])
		if j > i {
			text += "-" + strconv.Itoa(numbers[j])
		}
		i = j + 1
	}
	return text
}

// Break ends this rank's part without a word, as death does; for tests.
func (s *Session) Break() {
	if s.server != nil {
		s.server.stop()
	}
	s.relay.cut()
	s.conn.Close() // as the kernel does
}
