package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"
)

// Claim (docs/failures.md): rank 0 has one connection with the ranks of a host, by which each is heard, asked and answered
// as itself.
func TestRanksOfAHostShareAConnection(t *testing.T) {
	const world = 9
	sessions := run(t, freeAddr(t), []int{0, 3, 1, 2, 4, 5, 6, 7, 8})
	s := sessions[0].server
	s.mu.Lock()
	lines := len(s.lines)
	s.mu.Unlock()
	if LocalName(secret, "") != "" && (lines != 2 || sessions[3].relay == nil) {
		t.Errorf("%d connections of rank 0's host, without its own 1; rank 3 relays: %v", lines-1, sessions[3].relay != nil)
	}
	// What each says comes as its own, a report after the beats before it.
	var mu sync.Mutex
	said, asked := map[int][]string{}, map[int]int{}
	sessions[0].Hear(func(rank int, report []byte) {
		mu.Lock()
		defer mu.Unlock()
		said[rank] = append(said[rank], string(report))
	})
	for rank, s := range sessions {
		s.Speak(func() (string, []byte) { return "step 1", fmt.Append(nil, "beat of ", rank) }, func() {
			mu.Lock()
			defer mu.Unlock()
			asked[rank]++
		})
	}
	eventually(t, "all ranks are heard", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(said) == world
	})
	for rank, s := range sessions {
		if err := s.Tell(fmt.Append(nil, "report of ", rank)); err != nil {
			t.Error(err)
		}
	}
	for _, rank := range []int{0, 3, 7} {
		sessions[0].Ask(rank)
	}
	eventually(t, "ranks 0, 3 and 7 are asked, and all have reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		reports := 0
		for rank, list := range said {
			for _, text := range list {
				if text != fmt.Sprint("beat of ", rank) && text != fmt.Sprint("report of ", rank) {
					t.Fatalf("rank %d says %q", rank, text)
				}
				if text == fmt.Sprint("report of ", rank) {
					reports++
				}
			}
		}
		return reports == world && len(asked) == 3
	})
	mu.Lock()
	if want := map[int]int{0: 1, 3: 1, 7: 1}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	mu.Unlock()
	closeAll(t, sessions)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is not so that %s", what)
		}
	}
}

// Claim: a rank whose relay dies before all have met joins by another, or by itself.
func TestRelayDiesBeforeTheMeeting(t *testing.T) {
	if LocalName(secret, "") == "" {
		t.Skip("ranks of a host do not find each other on this system")
	}
	addr := freeAddr(t)
	dead := &Session{config: config(addr, 1, 4)}
	if conn := dead.host(); conn != nil || dead.relay == nil {
		t.Fatal("the first rank of a host does not relay")
	}
	var configs []Config
	for rank := range 4 {
		configs = append(configs, config(addr, rank, 4))
	}
	go func() {
		eventually(t, "a rank is with the relay", dead.relay.staying)
		dead.relay.cut()
	}()
	sessions, errs := joinAll(configs, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAll(t, sessions)
}

// Claim: heartbeats arrive as they were sent, and what is cut short is refused.
func TestHeartbeatsArePacked(t *testing.T) {
	want := []Beat{{0, []byte("step 7"), []byte("a")}, {5, []byte{}, []byte{}}, {300, []byte("step 7"), make([]byte, 400)}}
	text := packBeats(want)
	if got, err := unpackBeats(nil, text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	complete := map[int]bool{len(packBeats(nil)): true, len(packBeats(want[:1])): true, len(packBeats(want[:2])): true}
	for n := 1; n < len(text); n++ {
		if _, err := unpackBeats(nil, text[:n]); (err == nil) != complete[n] {
			t.Errorf("%d of %d bytes: %v", n, len(text), err)
		}
	}
}

// Claim: a report arrives as it was sent, whatever is in it, and takes a few bytes more.
func TestReportsArePacked(t *testing.T) {
	report := make([]byte, 256)
	for i := range report {
		report[i] = byte(i)
	}
	for _, seat := range []int{0, 7, 300} {
		sent := ReportFrame(seat, report)
		m, err := newReader(bytes.NewReader(sent)).message(len(sent))
		if err != nil || m.Kind != kindReport || m.Seat != seat || !bytes.Equal(m.report, report) || len(sent) > len(report)+8 {
			t.Errorf("seat %d: %d bytes, %+v, %v", seat, len(sent), m, err)
		}
	}
	for _, text := range [][]byte{{reportMark}, {reportMark, 0xff}, packReport(1<<40, report)} {
		if seat, _, err := unpackReport(text); err == nil {
			t.Errorf("%v is a report of seat %d", text, seat)
		}
	}
}

// Claim: a connection speaks for its own ranks only, and for none that has not joined.
func TestSeatsOfOthersAreIgnored(t *testing.T) {
	s := &server{config: Config{World: 4}, peers: make([]*peer, 4), lines: map[*line]bool{}}
	for i := range 2 {
		l := &line{queue: &queue{out: make(chan []byte, 9)}}
		s.lines[l] = true
		s.take(l, &message{Kind: kindJoin, Seat: 1, Member: &Member{Rank: 3, World: 4}}) // not its next seat
		s.take(l, &message{Kind: kindJoin, Member: &Member{Rank: i, World: 4}})
		for _, seat := range []int{-1, 1, 1 << 40} {
			s.take(l, &message{Kind: kindGone, Seat: seat})
			s.take(l, &message{Kind: kindBeat, beats: []Beat{{Seat: seat, At: []byte("x")}}})
		}
	}
	if s.came != 2 || s.verdict != nil || s.peers[3] != nil || s.peers[0].is != "" {
		t.Errorf("%d ranks have come, verdict %v, %+v", s.came, s.verdict, s.peers)
	}
}
