package watch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"monotron/mpu/comm"
	"monotron/mpu/comm/rendezvous"
)

// Claim (docs/failures.md): a port scan, a wrong secret, garbage, a message
// too large and connections that say nothing do not keep a rank's beats from the
// watcher; a rank of another run is not heard.
func TestStrangers(t *testing.T) {
	key := []byte("the key of this run")
	verdicts := make(chan *Verdict, 1)
	s, err := Listen("127.0.0.1", key, 1, Settings{Limit: 2 * time.Second}, func(v *Verdict) { verdicts <- v })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	addr := fmt.Sprintf("127.0.0.1:%d", s.Port())
	call := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range strangers + 50 {
		call() // silent ones, more than are kept
	}
	for range 20 {
		call().Close()
		_, _ = call().Write(bytes.Repeat([]byte{0xff}, 4096))
	}
	if err := rendezvous.Call(call(), []byte("another key")); err == nil {
		t.Error("a wrong key was taken")
	}
	for _, hello := range []*message{{Hello: &Hello{Rank: 1, World: 1}}, {Hello: &Hello{Rank: 0, World: 2}}, {Beat: &Beat{}}} {
		c := call()
		if err := rendezvous.Call(c, key); err != nil {
			t.Fatal(err)
		}
		if err := writeMessage(c, hello); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := readMessage(c); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%+v was not turned away: %v", hello, err)
		}
	}
	r, err := NewRecorder(0, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Mine()
	r.Enter(Data, 3)
	b := Dial(r, addr, key)
	defer b.Close(nil)
	select {
	case v := <-verdicts: // the rank does nothing, and is heard
		if v.Rank != 0 || v.Phase != "data" || !strings.Contains(v.Stack, "TestStrangers") {
			t.Errorf("%+v", v)
		}
	case <-time.After(time.Minute):
		t.Fatal("the rank was not heard among the strangers")
	}
}

// Claim: a rank whose beat connection breaks is heard again; the run does not notice.
func TestBrokenBeats(t *testing.T) {
	key := []byte("key")
	s, err := Listen("127.0.0.1", key, 1, Settings{Limit: time.Hour}, func(*Verdict) {})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := NewRecorder(0, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	b := Dial(r, fmt.Sprintf("127.0.0.1:%d", s.Port()), key)
	defer b.Close(nil)
	heard := func(step int64) {
		t.Helper()
		r.Enter(Forward, step)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			s.mu.Lock()
			beat := s.ranks[0].beat
			s.mu.Unlock()
			if beat != nil && beat.Step == step {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("step %d was not heard of", step)
			}
		}
	}
	heard(1)
	s.gate.Lock()
	s.conns[0].Close()
	s.gate.Unlock()
	heard(2)
}

// FuzzMessage: whatever comes where a beat should, is an error or a message; memory
// follows what has come.
func FuzzMessage(f *testing.F) {
	for _, m := range []*message{{Hello: &Hello{World: 2, Groups: []Named{{"tp", []int{0, 1}}}}}, {Beat: &Beat{Phase: Data, Groups: []Count{{Entered: 3}}}}, {Ask: true},
		{Report: &Report{Stack: "goroutine 1", Calls: []Call{{Op: comm.Barrier}}}}} {
		var b bytes.Buffer
		if err := writeMessage(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMessage(bytes.NewReader(data))
		if err != nil {
			return
		}
		w := &Watcher{ranks: make([]view, 2), told: make(chan struct{}, 1), settings: Settings{Limit: time.Second}}
		w.hear(0, m)
		w.ranks[1] = w.ranks[0]
		diagnose(w.ranks, time.Now().Add(3*time.Second), time.Second)
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
