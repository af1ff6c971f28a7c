package health

import (
	"strings"
	"testing"
	"time"

	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// run4 is a run of TP2 x PP2 that stands still: tp 0,1 and 2,3; pp 0,2 and 1,3.
type run4 struct {
	now time.Time
	*Watcher
}

func newRun4() *run4 {
	r := &run4{time.Now(), newWatcher(4, Settings{Limit: 15 * time.Second}, nil, nil)}
	groups := [][]Named{
		{{"tp", "0,1"}, {"pp", "0,2"}}, {{"tp", "0,1"}, {"pp", "1,3"}},
		{{"tp", "2,3"}, {"pp", "0,2"}}, {{"tp", "2,3"}, {"pp", "1,3"}},
	}
	for rank, g := range groups {
		r.hear(rank, &message{Hello: &Hello{Groups: g}, Beat: &Beat{Phase: Forward, Step: 5, Groups: []Count{{Entered: 640}, {Entered: 2}}}})
		r.ranks[rank].heard, r.ranks[rank].moved = r.now, r.now.Add(-21*time.Second)
	}
	return r
}

// enters has a rank sleep in the next collective of a group.
func (r *run4) enters(rank, group int) { enters(&r.ranks[rank], group) }

func enters(v *view, group int) {
	v.beat.Waiting = &Call{Group: v.hello.Groups[group].Key(), Seq: v.beat.Groups[group].Entered, Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: 8, DType: "f32", Outer: "model/mlp.go:84"}
	v.beat.Groups[group].Entered++
}

// receives has a rank sleep in an exchange for its first message from a peer.
func (r *run4) receives(rank, peer int) {
	b, g := r.ranks[rank].beat, r.ranks[rank].hello.Groups[1]
	b.Waiting = &Call{Group: g.Key(), Seq: 0, Op: comm.Exchange, Root: -1, Messages: []Message{{peer, false, 0}}}
	b.Groups[1].Received = map[int32]uint32{int32(peer): 1}
}

func (r *run4) verdict() *failure.Verdict {
	if f := r.frozen(r.now); f != nil {
		return f.diagnose()
	}
	return nil
}

// Claim (docs/failures.md): "rank 12 never entered all-reduce #640 of tp group 3;
// rank 3 is in the data loader": the rank that waits for nobody is named, through those
// that wait for one another.
func TestStallNamesWhoIsMissing(t *testing.T) {
	r := newRun4()
	r.ranks[3].beat.Phase = Data
	r.enters(2, 0)
	r.receives(0, 2)
	r.enters(1, 0)
	v := r.verdict()
	want := "rank 3 never entered all_reduce(sum) of 8 f32 #640 of tp group 1 (ranks 2,3), where rank 2 waits (model/mlp.go:84); rank 3 is in the data loader of step 5 and has done nothing for 21 s"
	if v == nil || v.Text != want || v.Rank != 3 || v.Kind != failure.Stall || v.Phase != "data" || len(v.Ranks) != 4 {
		t.Fatalf("%+v\nwant %s", v, want)
	}
	r = newRun4()
	r.receives(2, 0)
	r.enters(3, 0)
	r.enters(1, 0)
	r.ranks[0].beat.Phase = Backward
	if v := r.verdict(); v == nil || v.Rank != 0 || v.Kind != failure.Stall {
		t.Errorf("%+v", v)
	}
}

// Claim: ranks that wait for each other have called in different orders; the one
// whose calls differ from the others' is named.
func TestCycleNamesWhoDiffers(t *testing.T) {
	r := newRun4()
	r.enters(3, 1) // all_reduce of pp, which nobody else calls
	r.enters(2, 0)
	r.receives(1, 3)
	r.enters(0, 0)
	v := r.verdict()
	if v == nil || v.Rank != 3 || v.Kind != failure.Mismatch || !strings.Contains(v.Text, "rank 3 is in all_reduce(sum) of 8 f32 #2 of pp group 1 (ranks 1,3)") {
		t.Errorf("%+v", v)
	}
}

// Claim: no verdict while a rank is at work, has just been, or is not heard of; none
// once all are done.
func TestNoVerdict(t *testing.T) {
	for name, change := range map[string]func(*run4){
		"a rank has just done something": func(r *run4) { r.ranks[3].moved = r.now.Add(-14 * time.Second) },
		"a rank is not heard of":         func(r *run4) { r.ranks[3].heard = r.now.Add(-5 * time.Second) },
		"a rank has not come yet":        func(r *run4) { r.ranks[3].hello = nil },
		"all are done": func(r *run4) {
			for i := range r.ranks {
				r.ranks[i].over = true
			}
		},
	} {
		r := newRun4()
		r.enters(2, 0)
		change(r)
		if v := r.verdict(); v != nil {
			t.Errorf("%s: %s", name, v.Text)
		}
	}
	busy := &Beat{Busy: true}
	if same := (&Beat{}); !busy.moved(same) || same.moved(same) || !(&Beat{Calls: 1}).moved(same) {
		t.Error("what counts as doing something")
	}
}

// Claim (docs/failures.md): the straggler line names the slowest rank of each phase.
func TestStragglers(t *testing.T) {
	r := newRun4()
	w := r.Watcher
	w.settings = Settings{Remark: func(string) {}, Every: 2}
	if line := w.stragglers(); line != "" {
		t.Errorf("at once: %s", line)
	}
	for rank := range r.ranks {
		b := *r.ranks[rank].beat
		b.Steps += 2
		b.Own[Forward] += 0.2
		if rank == 2 {
			b.Own[Forward] += 0.3
		}
		r.ranks[rank].beat = &b
	}
	if line := w.stragglers(); !strings.Contains(line, "forward: rank 2, 250.0 ms (median 100.0)") {
		t.Errorf("%q", line)
	}
	if line := w.stragglers(); line != "" {
		t.Errorf("again: %s", line)
	}
}
