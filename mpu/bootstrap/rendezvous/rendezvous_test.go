package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

var secret = []byte("known to this run only")

// freeAddr is a local address with a port that nobody has.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func config(addr string, rank, world int) Config {
	return Config{Rank: rank, World: world, Addr: addr, Secret: secret, Data: ":1", Timeout: 30 * time.Second}
}

// joinAll joins the ranks in the given order, `apart` from each other.
func joinAll(configs []Config, apart time.Duration) ([]*Session, []error) {
	sessions, errs := make([]*Session, len(configs)), make([]error, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() { sessions[i], errs[i] = Join(context.Background(), c) })
		time.Sleep(apart)
	}
	all.Wait()
	return sessions, errs
}

func run(t *testing.T, addr string, order []int) []*Session {
	t.Helper()
	var configs []Config
	for _, rank := range order {
		configs = append(configs, config(addr, rank, len(order)))
	}
	sessions, errs := joinAll(configs, 20*time.Millisecond)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	byRank := make([]*Session, len(order))
	for i, rank := range order {
		byRank[rank] = sessions[i]
	}
	return byRank
}

func closeAll(t *testing.T, sessions []*Session) {
	t.Helper()
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Claim (docs/launch.md): ranks may come in any order, rank 0 last too; each
// gets the same list and the same name of the run.
func TestAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0}, {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		sessions := run(t, freeAddr(t), order)
		for rank, s := range sessions {
			if len(s.Members()) != len(order) || s.Members()[rank].Rank != rank || s.Members()[rank].Addr != "127.0.0.1:1" || s.Run() != sessions[0].Run() {
				t.Errorf("order %v, rank %d of run %s: %v", order, rank, s.Run(), s.Members())
			}
			if !bytes.Equal(s.Key(), sessions[0].Key()) {
				t.Errorf("order %v, rank %d has another key", order, rank)
			}
		}
		closeAll(t, sessions)
	}
}

// Claim (docs/launch.md): what does not fit is one error that names it, on all ranks.
func TestMisfits(t *testing.T) {
	with := func(addr string, rank, world int, change func(*Config)) Config {
		c := config(addr, rank, world)
		change(&c)
		return c
	}
	plain := func(*Config) {}
	for _, test := range []struct {
		name, want string
		other      func(addr string) Config
	}{
		{"world size", "started as one of 3 ranks, but rank 0 as one of 2", func(a string) Config { return with(a, 1, 3, plain) }},
		{"duplicate", "two processes have the same rank", func(a string) Config { return with(a, 0, 2, plain) }},
		{"binary", "does not have the same binary as rank 0: B instead of A", func(a string) Config {
			return with(a, 1, 2, func(c *Config) { c.Alike = map[string]string{"binary": "B"} })
		}},
		{"late", "1 of 2 ranks did not join within 400ms: 1", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := freeAddr(t)
			first := with(addr, 0, 2, func(c *Config) { c.Alike = map[string]string{"binary": "A"} })
			configs := []Config{first}
			if test.other == nil {
				configs[0].Timeout = 400 * time.Millisecond
			} else if c := test.other(addr); c.Rank == 0 { // it would listen, too: join as a client of the first
				c.Rank = 1
				c.Alike = first.Alike
				again := c
				configs = []Config{with(addr, 0, 3, func(c *Config) { c.Alike = first.Alike }), c, again}
				configs[1].World, configs[2].World = 3, 3
			} else {
				configs = append(configs, c)
			}
			_, errs := joinAll(configs, 50*time.Millisecond)
			for i, err := range errs {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("member %d: %v, want %q", i, err, test.want)
				}
			}
		})
	}
}

// Claim (docs/launch.md): the second of two jobs on one port gets an error that says so, and the
// first continues.
func TestTwoJobsOnOnePort(t *testing.T) {
	addr := freeAddr(t)
	sessions := run(t, addr, []int{0, 1})
	if _, err := Join(context.Background(), config(addr, 0, 2)); err == nil || !strings.Contains(err.Error(), "the port of") {
		t.Errorf("a second rank 0: %v", err)
	}
	other := config(addr, 1, 2)
	other.Secret = []byte("another")
	if _, err := Join(context.Background(), other); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "not rank 0 of this run") {
		t.Errorf("a rank of another run: %v", err)
	}
	if _, err := Join(context.Background(), config(addr, 1, 2)); err == nil || !strings.Contains(err.Error(), "two processes have the same rank") {
		t.Errorf("a rank that is there already: %v", err)
	}
	for _, s := range sessions {
		if s.Err() != nil {
			t.Error(s.Err())
		}
	}
	closeAll(t, sessions)
}

// Claim (docs/failures.md): who ends without a word is named to all others, with
// what it was at; rank 0 too.
func TestDeathIsNamed(t *testing.T) {
	for _, dead := range []int{2, 0, 1} {
		sessions := run(t, freeAddr(t), []int{0, 1, 2, 3}) // rank 1 relays for 2 and 3, where a system has a name for that
		sessions[dead].Speak(func() (string, []byte) { return "step 7, backward", nil }, nil)
		time.Sleep(2*beatEvery + 200*time.Millisecond)
		sessions[dead].Break()
		for rank, s := range sessions {
			if rank == dead {
				continue
			}
			select {
			case <-s.Lost():
			case <-time.After(30 * time.Second):
				t.Fatalf("rank %d does not know that rank %d is dead", rank, dead)
			}
			want := fmt.Sprintf("rank %d (process", dead)
			if err := s.Err(); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "died") {
				t.Errorf("rank %d: %v, want %q", rank, err, want)
			}
			if dead != 0 && !strings.Contains(s.Err().Error(), "step 7, backward") {
				t.Errorf("the phase is missing: %v", s.Err())
			}
		}
		for _, s := range sessions {
			_ = s.Close() // the verdict
		}
	}
}

// Claim: a rank that stops without closing its connection is named after the
// time limit.
func TestSilenceIsNamed(t *testing.T) {
	addr := freeAddr(t)
	configs := []Config{config(addr, 0, 2), config(addr, 1, 2)}
	for i := range configs {
		configs[i].Silence = 1500 * time.Millisecond
	}
	sessions, errs := joinAll(configs, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	close(sessions[1].ended) // beats no more
	select {
	case <-sessions[0].Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("nobody noticed")
	}
	if err := sessions[0].Err(); !strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), "has not responded for") {
		t.Error(err)
	}
	_ = sessions[0].Close()
	sessions[1].conn.Close()
}

// Claim: the error of the first rank that fails reaches all, with its exit code.
func TestErrorReachesAll(t *testing.T) {
	sessions := run(t, freeAddr(t), []int{0, 1, 2})
	if err := sessions[1].Fail(exitcode.Errorf(exitcode.BadData, "a bad sample")); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("its own: %v", err)
	}
	for rank, s := range sessions {
		<-s.Lost()
		if err := s.Fail(errors.New("a later one")); err.Error() != "rank 1: a bad sample" || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for _, s := range sessions {
		_ = s.Close() // the verdict
	}
}

// Claim: 1,000 ranks join in under 5 s. The time is logged, not
// asserted beyond a generous bound: the machine may be busy.
func TestThousandRanks(t *testing.T) {
	const world = 1000
	addr := freeAddr(t)
	var configs []Config
	for rank := range world {
		c := config(addr, rank, world)
		c.Silence, c.Timeout = 5*time.Minute, 5*time.Minute // one machine does the work of a thousand
		configs = append(configs, c)
	}
	start := time.Now()
	sessions, errs := joinAll(configs, 0)
	t.Logf("%d ranks joined in %v", world, time.Since(start))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAll(t, sessions)
}

// Claim (docs/launch.md): a port scan, garbage, a wrong secret and connections
// that say nothing do not disturb a run, neither while it gathers nor later.
func TestStrangersDoNotDisturb(t *testing.T) {
	addr := freeAddr(t)
	var configs []Config
	for rank := range 4 {
		configs = append(configs, config(addr, rank, 4))
	}
	first, errs := make(chan *Session, 1), make(chan error, 1)
	go func() {
		s, err := Join(context.Background(), configs[0])
		first <- s
		errs <- err
	}()
	time.Sleep(100 * time.Millisecond)
	disturb(t, addr)
	sessions, joined := joinAll(configs[1:], 0)
	sessions = append([]*Session{<-first}, sessions...)
	if err := errors.Join(append(joined, <-errs)...); err != nil {
		t.Fatal(err)
	}
	disturb(t, addr)
	time.Sleep(beatEvery)
	for _, s := range sessions {
		if s.Err() != nil {
			t.Error(s.Err())
		}
	}
	closeAll(t, sessions)
}

func disturb(t *testing.T, addr string) {
	t.Helper()
	for i := range 300 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		switch i % 4 {
		case 0: // says nothing
		case 1:
			c.Close()
		case 2:
			_, _ = c.Write(bytes.Repeat([]byte{0xff}, 10000)) // the server may hang up meanwhile
		case 3:
			go func() { _ = Call(c, []byte("wrong")) }()
		}
	}
}

// Claim (docs/launch.md): where hosts have different secrets rank 0 says so, instead of only that
// it waits.
func TestOtherSecretIsReported(t *testing.T) {
	addr := freeAddr(t)
	first, other := config(addr, 0, 2), config(addr, 1, 2)
	first.Timeout = 2 * time.Second
	other.Secret = []byte("of another host")
	_, errs := joinAll([]Config{first, other}, 100*time.Millisecond)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "1 connections did not have this run's secret, the last from 127.0.0.1:") {
		t.Errorf("rank 0: %v", errs[0])
	}
	if exitcode.CodeOf(errs[1]) != exitcode.Usage {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// Claim: both ends must know the secret; replayed or turned-around proofs fail.
func TestProof(t *testing.T) {
	for _, test := range []struct {
		caller, answerer string
		ok               bool
	}{{"a", "a", true}, {"a", "b", false}, {"", "b", false}} {
		a, b := net.Pipe()
		answered := make(chan error, 1)
		go func() {
			err := Answer(b, []byte(test.answerer))
			if err != nil {
				b.Close()
			}
			answered <- err
		}()
		err := Call(a, []byte(test.caller))
		if err != nil {
			a.Close()
		}
		if other := <-answered; (err == nil) != test.ok || (other == nil) != test.ok {
			t.Errorf("%+v: caller %v, answerer %v", test, err, other)
		}
	}
}

// FuzzAnswer: no bytes of a stranger get through, panic, or make it wait long.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(greeting))
	f.Add(append([]byte(greeting), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		go func() {
			go func() { _, _ = a.Write(data); a.Close() }()
			_, _ = bytes.NewBuffer(nil).ReadFrom(a)
		}()
		if Answer(b, secret) == nil {
			t.Errorf("%q was let in", data)
		}
		b.Close()
	})
}

// FuzzReadMessage: whatever comes is a message or an error, and nothing larger
// than the limit is allocated.
func FuzzReadMessage(f *testing.F) {
	full, err := frame(&message{Kind: kindJoin, Member: &Member{Rank: 1, World: 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add(BeatsFrame([]Beat{{3, []byte("step 7"), []byte("a")}}))
	f.Add(ReportFrame(3, []byte("a")))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := newReader(bytes.NewReader(data)).message(1000)
		if (m == nil) == (err == nil) {
			t.Errorf("%v and %v", m, err)
		}
		if err == nil && len(data) > 4 && len(data)-4 > 1000 && data[2] > 4 {
			t.Errorf("a message beyond the limit was taken")
		}
	})
}

// Claim (docs/failures.md): those that have come by the time limit continue without the
// others; one that comes later gets an error that says so, and disturbs nobody.
func TestFewer(t *testing.T) {
	addr := freeAddr(t)
	var configs []Config
	for _, rank := range []int{2, 0} {
		c := config(addr, rank, 4)
		c.Fewer, c.Called, c.Timeout = true, "host", 4*time.Second // time for both to come, on a busy machine too
		configs = append(configs, c)
	}
	sessions, errs := joinAll(configs, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		for rank, m := range s.Members() {
			if here := rank%2 == 0; (m.PID != 0) != here || m.Rank != rank {
				t.Errorf("rank %d: %+v", rank, m)
			}
		}
	}
	late := config(addr, 1, 4)
	late.Called = "host"
	if _, err := Join(context.Background(), late); err == nil || !strings.Contains(err.Error(), "host 1 (") || !strings.Contains(err.Error(), "is too late") {
		t.Error(err)
	}
	closeAll(t, sessions)
}

// Claim (docs/launch.md): a wait that is long is noted, with whom it is for, and again
// at growing intervals.
func TestLongWait(t *testing.T) {
	var said strings.Builder
	p := newLongWait(&said)
	for second := range 200 {
		p.say(p.since.Add(time.Duration(second)*time.Second), "for %d", 3)
	}
	want := "for 3 (7 s so far)\nfor 3 (21 s so far)\nfor 3 (63 s so far)\nfor 3 (123 s so far)\nfor 3 (183 s so far)\n"
	if said.String() != want {
		t.Errorf("%q, want %q", said.String(), want)
	}
}
