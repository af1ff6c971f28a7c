package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/mpu/comm/failure"
)

// large is a run of TP8 x CP2 x DP x PP8 that stands still, of `world` ranks, all heard as
// rank 0 hears them. bytes counts what the hellos take.
func large(t *testing.T, world int) (w *Watcher, now time.Time, bytes int) {
	t.Helper()
	w, now = newWatcher(world, Settings{Limit: 15 * time.Second}, nil, nil), time.Now()
	groups := func(rank int) []Named {
		tp, cp, dp, pp := rank%8, rank/8%2, rank/16%(world/128), rank/(world/8)
		list := func(first, step, n int) (ranks []int) {
			for i := range n {
				ranks = append(ranks, first+i*step)
			}
			return ranks
		}
		var dense []int // the tensor groups of all copies, apart by a context group
		for d := range world / 128 {
			dense = append(dense, list(8*cp+16*d+pp*world/8, 1, 8)...)
		}
		return []Named{{"world", ranges(list(0, 1, world))}, {"tp", ranges(list(rank-tp, 1, 8))}, {"pp", ranges(list(tp+8*cp+16*dp, world/8, 8))},
			{"dp-cp", ranges(list(tp+pp*world/8, 8, world/64))}, {"tp-dp", ranges(dense)}}
	}
	for rank := range world {
		m := &message{Hello: &Hello{PID: rank, Host: "h"}, Beat: &Beat{Phase: Forward, Step: 5}}
		m.Hello.Groups = groups(rank)
		for range m.Hello.Groups {
			m.Beat.Groups = append(m.Beat.Groups, Count{Entered: 40})
		}
		sent, err := m.write()
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(sent)
		w.Hear(rank, sent)
		w.ranks[rank].heard, w.ranks[rank].moved = now, now.Add(-20*time.Second)
	}
	return w, now, bytes
}

// Claim (docs/failures.md): the verdict of a stall does not wait for the squares of many
// ranks: an eighth of 16,384 ranks absent from the world's group, and 2,048 from groups of
// their own, each with the one rank to blame. What the ranks say of their groups fits into 1 KiB
// each, however many there are.
func TestVerdictOfManyRanks(t *testing.T) {
	const world = 16384
	w, now, bytes := large(t, world)
	if bytes > world<<10 {
		t.Errorf("%d ranks say %d bytes of themselves", world, bytes)
	}
	for rank := range world {
		if v := &w.ranks[rank]; rank%8 != 3 {
			enters(v, 0)
		}
	}
	w.ranks[11].moved = now.Add(-25 * time.Second) // the absent one that has done nothing for longest
	v := w.frozen(now).diagnose()
	if v == nil || v.Rank != 11 || v.Kind != failure.Stall || !strings.HasPrefix(v.Text, "rank 11 never entered all_reduce(sum) of 8 f32 #40 of world group 0 (ranks 0-16383), where rank 0 waits") {
		t.Fatalf("%.300s", v.Text)
	}
	w, now, _ = large(t, world)
	for rank := range world {
		switch {
		case rank%8 == 3: // absent from their tensor groups
		case rank%8 < 3:
			enters(&w.ranks[rank], 1)
		default:
			enters(&w.ranks[rank], 3)
		}
	}
	enters(&w.ranks[7000-7000%8+3], 2) // one of them waits in its pipeline, so that another is to blame
	if v := w.frozen(now).diagnose(); v == nil || v.Rank%8 != 3 || v.Kind != failure.Stall {
		t.Fatalf("%.300s", v.Text)
	}
}

// Claim: the rank to blame is one that most ranks wait for, directly or through others, as
// a search over all pairs of ranks finds it.
func TestCulpritAgainstAllPairs(t *testing.T) {
	blamed := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newRun4()
		for rank := range 4 {
			switch random.IntN(4) {
			case 0:
				r.enters(rank, 0)
			case 1:
				r.enters(rank, 1)
			case 2:
				r.receives(rank, (rank+2)%4)
			}
		}
		s := newStill(r.frozen(r.now))
		best, most := -1, -1
		for rank := range 4 {
			if s.waits(rank) != nil {
				continue
			}
			if n := s.byPairs(rank); n > most {
				best, most = rank, n
			}
		}
		if got := s.culprit(); got != best {
			t.Errorf("seed %d: rank %d is blamed, most wait for %d", seed, got, best)
		}
		if best >= 0 && most > 0 {
			blamed++
		}
	}
	if blamed < 100 {
		t.Errorf("only %d of 400 runs have a rank that others wait for", blamed)
	}
}

// byPairs counts who waits for a rank by asking of each pair whether one lacks the other.
func (s *still) byPairs(rank int) int {
	seen, queue := []int{rank}, []int{rank}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for other := range s.ranks {
			if !slices.Contains(seen, other) && s.lacks(other, next) {
				seen, queue = append(seen, other), append(queue, other)
			}
		}
	}
	return len(seen) - 1
}

// Claim: ranks of a group name it alike, and a group with ranks outside the run is
// not taken.
func TestGroupsAreKeptOnce(t *testing.T) {
	w, _, _ := large(t, 1024)
	if n := len(w.groups); n != 1+2*1024/8+1024/16+1024/64 {
		t.Errorf("%d groups", n)
	}
	w.Hear(0, []byte(fmt.Sprintf("\x00"+`{"Hello":{"pid":1,"host":"h","groups":[{"n":"tp","r":"0-%d"},{"n":"tp","r":"x"},{"n":"tp","r":"0-1023"}]}}`, 1<<29)))
	if got := len(w.ranks[0].groups); got != 1 {
		t.Errorf("%d groups of three are taken", got)
	}
}
