package health

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
	"monotron/mpu/comm/inproc"
)

func numbers(n int) device.Tensor {
	values := make([]float32, n)
	return device.View(unsafe.Pointer(&values[0]), device.F32, int64(n))
}

// inWorld runs f on n ranks with recorders.
func inWorld(t *testing.T, n int, folder string, f func(r *Recorder, g *comm.Group) error) []*Recorder {
	t.Helper()
	recorders := make([]*Recorder, n)
	members := make([]int, n)
	for i := range n {
		var err error
		if recorders[i], err = NewRecorder(i, n, folder); err != nil {
			t.Fatal(err)
		}
		members[i] = i
	}
	w := inproc.NewWorld(n)
	err := w.Run(func(rank int) error {
		g, err := w.Group(rank, "tp", members, ref.Open())
		if err != nil {
			return err
		}
		return f(recorders[rank], recorders[rank].Wrap(g, false))
	})
	if err != nil {
		t.Fatal(err)
	}
	return recorders
}

// Claim (docs/failures.md): the ledger keeps each rank's last 1000 calls, in
// order, with group, number, op, count, dtype, call site, begin and end.
func TestRecord(t *testing.T) {
	recorders := inWorld(t, 2, "", func(r *Recorder, g *comm.Group) error {
		r.Enter(Reduce, 7)
		for range 1002 {
			if err := g.Barrier(); err != nil {
				return err
			}
		}
		return g.Broadcast(numbers(12), 0).Wait()
	})
	calls := recorders[1].Calls()
	first, last := calls[0], calls[len(calls)-1]
	if len(calls) != kept || first.Seq != 3 || first.Op != comm.Barrier || first.Number != 4 {
		t.Errorf("%d calls from %+v", len(calls), first)
	}
	if last.String() != "broadcast of 12 f32 with rank 0 #1002 of group tp 0,1" || last.Phase != "reduce" || last.Step != 7 || last.End < last.Start || last.Start == 0 ||
		!strings.HasPrefix(last.Site, "mpu/health/watch_test.go:") {
		t.Errorf("last: %v %+v", &last, last)
	}
}

// Claim (docs/failures.md): a rank's record is a file that says what it was at when it
// was killed: nothing has to be written at the end.
func TestFlightOutlivesItsRank(t *testing.T) {
	folder := t.TempDir()
	recorders := inWorld(t, 4, folder, func(r *Recorder, g *comm.Group) error {
		r.Enter(Backward, 3)
		var list []comm.Transfer
		if g.Rank() < 2 {
			list = []comm.Transfer{{Peer: 1 - g.Rank(), Send: true, T: numbers(5)}, {Peer: 1 - g.Rank(), T: numbers(5)}}
		}
		return g.Exchange(list).Wait()
	})
	recorders[1].sleep(1) // as if it had been killed in its exchange
	f, err := ReadFlight(FlightFile(folder, 1))
	if err != nil {
		t.Fatal(err)
	}
	if f.Rank != 1 || f.World != 4 || f.PID != os.Getpid() || f.At != "the backward pass of step 3" || len(f.Calls) != 1 || f.sleepsIn() == nil {
		t.Errorf("%+v", f)
	}
	if got := f.Calls[0].Messages; len(got) != 2 || got[0] != (Message{0, true, 0}) || got[1] != (Message{0, false, 0}) {
		t.Errorf("%v", got)
	}
	if st, err := os.Stat(FlightFile(folder, 1)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("others can read the record: %v %v", st.Mode(), err)
	}
	for _, r := range recorders {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if len(r.Calls()) != 1 {
			t.Error("a closed record has no calls")
		}
	}
}

// Claim: a record from outside, whatever it holds, gives an error or a record.
func TestDamagedFlight(t *testing.T) {
	folder := t.TempDir()
	inWorld(t, 2, folder, func(r *Recorder, g *comm.Group) error { return g.Barrier() })
	full, err := os.ReadFile(FlightFile(folder, 0))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		broken := bytes.Clone(full)
		for range 1 + random.IntN(8) {
			at := random.IntN(400)
			broken[at] = byte(random.IntN(256))
		}
		if f, err := parseFlight(broken); err == nil {
			_, _ = f.End(), Divergence([]*Flight{f})
			Timeline(io.Discard, []*Flight{f}, 0)
		}
	}
	if err := os.WriteFile(FlightFile(folder, 0), full[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFlight(FlightFile(folder, 0)); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "100 bytes") {
		t.Error(err)
	}
}

// Claim: regular lists of ranks are written short, and read back.
func TestRanges(t *testing.T) {
	for text, list := range map[string][]int{"0-3": {0, 1, 2, 3}, "1,5": {1, 5}, "0-12/4": {0, 4, 8, 12}, "0,1,9": {0, 1, 9}, "7": {7}, "0-2,8": {0, 1, 2, 8},
		"0-1,4-5,..,16-17": {0, 1, 4, 5, 8, 9, 12, 13, 16, 17}, "0,1,4,5,8,9": {0, 1, 4, 5, 8, 9},
		"0-4/2,10-14/2,..,30-34/2,40": {0, 2, 4, 10, 12, 14, 20, 22, 24, 30, 32, 34, 40}} {
		if got := ranges(list); got != text {
			t.Errorf("%v is written %s, want %s", list, got, text)
		}
		blocks, err := parseRanges(text)
		for n := range 50 {
			if err != nil || slices.ContainsFunc(blocks, func(b block) bool { return b.has(n) }) != slices.Contains(list, n) {
				t.Errorf("%d in %s: %v", n, text, err)
			}
		}
	}
	random := rand.New(rand.NewPCG(7, 1))
	for range 2000 {
		var list []int
		for n := range 64 {
			if random.IntN(3) > 0 && (n/8%2 == 0 || random.IntN(9) == 0) {
				list = append(list, n)
			}
		}
		if len(list) == 0 {
			continue
		}
		if back, err := members(ranges(list), 64); err != nil || !slices.Equal(back, list) {
			t.Fatalf("%v is written %s and read as %v (%v)", list, ranges(list), back, err)
		}
	}
}

// Claim: a list of ranks from outside is one that ranges writes, within the run, or an error;
// it takes no more memory than the run has ranks.
func TestHostileRanges(t *testing.T) {
	for _, text := range []string{"", "x", "1,", "3,2", "1-", "4-2", "0-5/0", "0-5/4", "-1", "1,..", "..,3", "1,2,..", "0,4,..,9", "0-1,4-5,..,8", "0-1000000000", "0,1,..,1000000000", "0,1,..,8,..,20", "99999999999"} {
		if list, err := members(text, 100); err == nil {
			t.Errorf("%q is read as %v", text, list)
		}
	}
}

// Claim (docs/failures.md): the verdict file is complete and private, and an earlier
// run's is kept next to it.
func TestVerdictFile(t *testing.T) {
	folder := t.TempDir() + "/run"
	for range 2 {
		if err := Fresh(folder); err != nil {
			t.Fatal(err)
		}
		want := &failure.Verdict{Kind: failure.Stall, Rank: 3, Code: 70, Text: "rank 3 stands still", Time: time.Now().UTC()}
		if err := want.Write(folder); err != nil {
			t.Fatal(err)
		}
		got, err := failure.Read(folder)
		if err != nil || got.Text != want.Text || got.Rank != 3 || exitcode.CodeOf(got.Err()) != 70 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := failure.Read(folder + "/before_1"); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(folder); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if err := os.WriteFile(failure.File(folder), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := failure.Read(folder); exitcode.CodeOf(err) != exitcode.BadData {
		t.Error(err)
	}
}

// Claim (docs/failures.md): a rank that calls something else than its peers is
// found by what the others call, also in a group of two.
func TestBlame(t *testing.T) {
	call := func(group string, count int64) []Call {
		return []Call{{Group: group, Seq: 4, Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: count, DType: "f32", Outer: "x.go:1"}}
	}
	calls := map[int][]Call{0: call("tp 0,1", 8), 1: call("tp 0,1", 8), 2: call("tp 2,3", 8), 3: call("tp 2,3", 7)}
	at := &failure.Differing{Group: "tp", Members: []int{2, 3}, Seq: 4, Ranks: [2]int{2, 3}}
	if rank, why := blame(at, calls); rank != 3 || !strings.Contains(why, "7 f32") {
		t.Errorf("%d, %s", rank, why)
	}
	delete(calls, 0)
	delete(calls, 1)
	one := Call{Group: "tp 2,3", Seq: 3, Op: comm.Barrier, Root: -1}
	calls[2], calls[3] = append([]Call{{Group: "tp 2,3", Seq: 1, Op: comm.Barrier, Root: -1}, {Group: "tp 2,3", Seq: 2, Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: 8, DType: "f32", Outer: "x.go:1"}, one}, calls[2]...),
		append([]Call{one}, calls[3]...)
	if rank, why := blame(at, calls); rank != 3 {
		t.Errorf("what follows a barrier was the same before: %d, %s", rank, why)
	}
	// A long run has made more collectives than can be counted one by one.
	late := map[int][]Call{0: call("tp 0,1", 8), 1: call("tp 0,1", 8), 2: call("tp 2,3", 8), 3: call("tp 2,3", 7)}
	for _, list := range late {
		list[0].Seq = 1 << 50
	}
	if rank, _ := blame(&failure.Differing{Group: "tp", Members: []int{2, 3}, Seq: 1 << 50, Ranks: [2]int{2, 3}}, late); rank != 3 {
		t.Errorf("call 2^50: rank %d", rank)
	}
	calls = map[int][]Call{2: call("tp 2,3", 8), 3: call("tp 2,3", 7)}
	if rank, why := blame(at, calls); rank != -1 {
		t.Errorf("two that differ, and nobody to compare with: %d, %s", rank, why)
	}
	if rank, _ := blame(nil, calls); rank != -1 {
		t.Errorf("a message's two ends differ, which says nothing of its ranks: %d", rank)
	}
}
