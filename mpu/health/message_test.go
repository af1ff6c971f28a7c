package health

import (
	"encoding/json"
	"errors"
	"net"
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
		sent, bad := json.Marshal(&message{Report: recorder(t, rank, 3).report(err), Bye: true})
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

// FuzzMessage: whatever a rank sends is an error or a message.
func FuzzMessage(f *testing.F) {
	for _, m := range []*message{{Hello: &Hello{Groups: []Named{{"tp", "0,1"}}}}, {Beat: &Beat{Phase: Data, Groups: []Count{{Entered: 3}}}},
		{Report: &Report{Stack: "goroutine 1", Calls: []Call{{Op: comm.Barrier}}}}} {
		sent, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		w := newWatcher(2, Settings{Limit: time.Second}, nil, nil)
		w.Hear(0, sent)
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
