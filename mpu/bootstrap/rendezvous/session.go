package rendezvous

import (
	"cmp"
	"fmt"
	"io"
	"net"
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
	Late     bool                     // on rank 0, with Loose: who comes late is let in, and is not in the list of members

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
	return s.tell(&message{Kind: kindReport, report: report})
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
		what += "; at its last heartbeat it was in " + s.aboveAt
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
