package health

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// met are the sessions of ranks of one process that have met.
func met(t *testing.T, n int) []*rendezvous.Session {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // rank 0 takes the port
	sessions, errs := make([]*rendezvous.Session, n), make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			sessions[rank], errs[rank] = rendezvous.Join(t.Context(), rendezvous.Config{Rank: rank, World: n, Addr: l.Addr().String(), Secret: []byte("of this test"), Timeout: time.Minute})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return sessions
}

func recorder(t *testing.T, rank, world int) *Recorder {
	t.Helper()
	r, err := NewRecorder(rank, world, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Claim (docs/failures.md): beats, questions and answers between a rank and the watcher
// pass over the connection by which the ranks have met.
func TestBeatsOverTheRendezvous(t *testing.T) {
	sessions := met(t, 2)
	verdicts := make(chan *failure.Verdict, 1)
	w := NewWatcher(2, Settings{Limit: 2 * time.Second}, sessions[0].Ask, func(v *failure.Verdict) { verdicts <- v })
	defer w.Close()
	sessions[0].Hear(w.Hear)
	for rank, s := range sessions {
		r := recorder(t, rank, 2)
		r.Enter(Data, 3)
		if rank == 1 {
			r.Mine()
		} else { // it is done
			b := Over(r, s)
			b.Close(nil)
			continue
		}
		b := Over(r, s)
		defer b.Close(nil)
	}
	select {
	case v := <-verdicts: // rank 1 does nothing, and is heard
		if v.Rank != 1 || v.Kind != failure.Stall || v.Phase != "data" || !strings.Contains(v.Stack, "TestBeatsOverTheRendezvous") {
			t.Errorf("%+v", v)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was heard")
	}
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() { _ = s.Close() }) // both are done
	}
	all.Wait()
}

// Claim (docs/failures.md): why a rank fails reaches the watcher in fields, also from
// another process: an error that only says that another rank has failed is never the
// verdict where that rank has reported.
func TestFailuresPassInFields(t *testing.T) {
	w := NewWatcher(3, Settings{Limit: time.Hour}, func(int) {}, nil)
	defer w.Close()
	failures := []error{exitcode.With(exitcode.IO, failure.Remotef("not mine")), exitcode.Errorf(exitcode.BadData, "mine"), exitcode.With(exitcode.IO, failure.Remotef("nor mine"))}
	for rank, err := range failures {
		sent, bad := (&message{Report: recorder(t, rank, 3).report(err), Bye: true}).write()
		if bad != nil {
			t.Fatal(bad)
		}
		w.Hear(rank, sent)
	}
	w.Hear(0, []byte("no message"))
	v := w.Verdict(failures[0])
	if v.Rank != 1 || v.Kind != failure.Own || v.Code != exitcode.BadData {
		t.Errorf("%+v", v)
	}
}

// randomBeat has every field drawn.
func randomBeat(random *rand.Rand) *Beat {
	b := &Beat{Phase: Phase(random.IntN(Phases)), Step: random.Int64(), Since: random.Int64(), Calls: random.Int64(), Ended: random.Int64(), Marks: random.Int64(), Outside: random.Int64(),
		Stalled: random.IntN(2) == 0, Busy: random.IntN(2) == 0, Waited: random.Int64(), Steps: random.Int64()}
	for p := range b.Own {
		b.Own[p], b.Longest[p] = random.ExpFloat64(), random.ExpFloat64()
	}
	for range random.IntN(5) {
		c := Count{Entered: random.Int64()}
		for range random.IntN(3) {
			c.Sent, c.Received = map[int32]uint32{random.Int32(): random.Uint32()}, map[int32]uint32{random.Int32(): random.Uint32(), random.Int32(): random.Uint32()}
		}
		b.Groups = append(b.Groups, c)
	}
	if random.IntN(2) == 0 {
		b.Waiting = &Call{Number: random.Int64(), Group: "tp 0-7", Seq: random.Int64(), Op: comm.Exchange, Reduce: comm.Max, Root: -1, Count: random.Int64(), DType: "f32", Phase: "data", Step: random.Int64(),
			Site: "a.go:1", Outer: "b.go:2", Start: random.Int64(), End: random.Int64()}
		for range random.IntN(4) {
			b.Waiting.Messages = append(b.Waiting.Messages, Message{random.IntN(1 << 30), random.IntN(2) == 0, random.Int64()})
		}
	}
	return b
}

// Claim: every field of a heartbeat arrives as it was sent; one that is cut short anywhere is refused.
func TestHeartbeatArrives(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 9))
	for range 300 {
		want := &message{Beat: randomBeat(random)}
		if random.IntN(3) == 0 {
			want.Hello = &Hello{PID: 7, Host: "h", Groups: []Named{{"tp", "0-7"}}}
		}
		sent, err := want.write()
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(sent)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %+v, sent %+v", err, got.Beat, want.Beat)
		}
		if want.Hello == nil {
			if got, err := read(sent[:random.IntN(len(sent))]); err == nil {
				t.Fatalf("a part is read as %+v", got.Beat)
			}
		}
	}
	for _, known := range []struct {
		value  any
		fields int
	}{{Beat{}, 15}, {Count{}, 3}, {Call{}, 15}, {Message{}, 3}} {
		if kind := reflect.TypeOf(known.value); kind.NumField() != known.fields {
			t.Errorf("%v has %d fields, of which %d are sent: see fields.go and randomBeat", kind, kind.NumField(), known.fields)
		}
	}
}

// Claim: every field of a report arrives as it was sent; one that is cut short anywhere is refused.
func TestReportArrives(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for range 300 {
		want := &message{Report: &Report{Failure: failure.Of(2, exitcode.Errorf(exitcode.BadData, "mine")).Brief(), Stack: pack(strings.Repeat("goroutine ", random.IntN(99)))}}
		for range random.IntN(20) {
			if b := randomBeat(random); b.Waiting != nil {
				b.Waiting.Site, b.Waiting.Outer = strings.Repeat("a", random.IntN(4)), strings.Repeat("b", random.IntN(4))
				want.Report.Calls = append(want.Report.Calls, *b.Waiting)
			}
		}
		sent, err := want.write()
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(sent)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Report.Calls, want.Report.Calls) || got.Report.Stack.text() != want.Report.Stack.text() || got.Report.Failure.Code != exitcode.BadData {
			t.Fatalf("%+v, sent %+v", got.Report, want.Report)
		}
		if got, err := read(sent[:random.IntN(len(sent))]); err == nil {
			t.Fatalf("a part is read as %+v", got.Report)
		}
	}
	if n := reflect.TypeFor[Report]().NumField(); n != 3 {
		t.Errorf("a report has %d fields, of which 3 are sent: see fields.go", n)
	}
}

// Claim (docs/failures.md): what rank 0 hears of each rank when a run fails takes 4 KiB at most: a stack of 40 calls, and
// the last 64 collectives of 8 groups from 16 lines.
func TestReportIsSmall(t *testing.T) {
	n := len(loadReported(5462, 16384))
	t.Logf("%d bytes, with a stack of %d", n, len(loadStack()))
	if n > 4<<10 {
		t.Error("a report is too large")
	}
}

// Claim: the stack in a report, whatever was sent as one, gives a text of limited length.
func TestPackedStack(t *testing.T) {
	if text := strings.Repeat("goroutine 1 [running]:\n", 100); pack(text).text() != text {
		t.Error("a stack is not unpacked as it was packed")
	}
	if n := len(pack(strings.Repeat("x", 1<<22)).text()); n != sentStack {
		t.Errorf("a long text is unpacked to %d bytes, not %d", n, sentStack)
	}
	for _, wrong := range []packed{nil, {1, 2, 3}, pack("goroutine 1")[:3]} {
		if text := wrong.text(); len(text) > len("goroutine 1") {
			t.Errorf("%v is unpacked as %q", wrong, text)
		}
	}
}

// Claim: numbers that no rank sends, and lists longer than their message, are refused without the memory that they ask for.
func TestWrongHeartbeats(t *testing.T) {
	nan := &Beat{}
	nan.Own[Data] = math.NaN()
	for name, m := range map[string]*message{"phase": {Beat: &Beat{Phase: Phases}}, "calls": {Beat: &Beat{Calls: -1}}, "seconds": {Beat: nan}} {
		sent, err := m.write()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(sent); err == nil {
			t.Errorf("%s: read as %+v", name, got.Beat)
		}
	}
	long := &fields{bytes: []byte{1}}
	long.beat(&Beat{})
	empty := len(long.bytes) - 1 // of no groups
	sent := binary.AppendVarint(long.bytes[:empty:empty], 1<<40)
	if n := testing.AllocsPerRun(10, func() { _, _ = read(sent) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if _, err := read(sent); err == nil {
		t.Error("a list of 2^40 groups is read")
	}
}

// FuzzMessage: whatever a rank sends is an error or a message.
func FuzzMessage(f *testing.F) {
	for _, m := range []*message{{Hello: &Hello{Groups: []Named{{"tp", "0,1"}}}}, {Beat: &Beat{Phase: Data, Groups: []Count{{Entered: 3}}}},
		{Report: &Report{Stack: pack("goroutine 1"), Calls: []Call{{Op: comm.Barrier}}}}} {
		sent, err := m.write()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		w := newWatcher(2, Settings{Limit: time.Second}, nil, nil)
		w.Hear(0, sent)
		if r := w.ranks[0].report; r != nil {
			describe(&failure.Verdict{}, w.ranks)
		}
		w.ranks[1] = w.ranks[0]
		if f := w.frozen(time.Now().Add(3 * time.Second)); f != nil {
			f.diagnose()
		}
	})
}

// FuzzFlight: a flight record from outside gives an error or a record that can be
// printed.
func FuzzFlight(f *testing.F) {
	p, err := newPage(0, 2, "")
	if err != nil {
		f.Fatal(err)
	}
	p.put("tp 0,1")
	f.Add(p.memory[:200], int64(1))
	f.Fuzz(func(t *testing.T, start []byte, written int64) {
		memory := make([]byte, pageBytes)
		copy(memory, p.memory)
		copy(memory, start)
		if f, err := parseFlight(memory); err == nil {
			_ = f.End()
			_ = Divergence([]*Flight{f, f})
		}
	})
}
