package mpu

import (
	"fmt"
	"slices"
	"testing"
)

// Claim: whatever the cuts, the parts' positions are all positions once, part by part of
// equal size; ZigZag gives Megatron's stretches r and 2·cp−1−r (get_batch_on_this_cp_rank).
func TestPositionsAreCutOnce(t *testing.T) {
	for _, cp := range []int{1, 2, 4} {
		for _, tp := range []int{1, 2, 3, 4} {
			n := int64(2 * cp * tp * 3)
			seen := make([]int, n)
			for c := range cp {
				for r := range tp {
					p := AllPositions(n).ZigZag(c, cp).Cut(r, tp)
					if p.Len() != n/int64(cp*tp) {
						t.Fatalf("cp %d of %d, tp %d of %d: %d positions of %d", c, cp, r, tp, p.Len(), n)
					}
					for _, s := range p {
						for i := range s.N {
							seen[s.From+i]++
						}
					}
				}
			}
			if slices.Max(seen) != 1 || slices.Min(seen) != 1 {
				t.Errorf("cp %d, tp %d: positions are held %v times", cp, tp, seen)
			}
		}
	}
	if got := fmt.Sprint(AllPositions(16).ZigZag(1, 2)); got != "[{4 4} {8 4}]" {
		t.Errorf("rank 1 of 2 has %s", got)
	}
	if got := fmt.Sprint(AllPositions(24).ZigZag(0, 2).Cut(1, 3)); got != "[{4 2} {18 2}]" {
		t.Errorf("a part that spans both stretches: %s", got)
	}
}

// Claim: documents are cut one by one: parts are all positions once, equally long, in order,
// and the work of each is that of the others but for what 2·cp does not divide, where a cut of the
// sequence gives one part several times another's.
func TestDocumentsAreCutOnce(t *testing.T) {
	first := make([]int32, 96)
	for i := range first {
		for _, start := range []int32{8, 9, 50, 66} {
			if int32(i) >= start {
				first[i] = start
			}
		}
	}
	documents := Documents(first)
	if got := fmt.Sprint(documents); got != "[{0 8} {8 1} {9 41} {50 16} {66 30}]" {
		t.Fatalf("documents are %s", got)
	}
	for _, cp := range []int{1, 2, 4} {
		var seen [96]int
		var work []int64
		for r := range cp {
			p, last, pairs := documents.ZigZag(r, cp), int64(-1), int64(0)
			if p.Len() != int64(96/cp) {
				t.Fatalf("part %d of %d: %d positions", r, cp, p.Len())
			}
			for _, s := range p {
				if s.From <= last {
					t.Fatalf("part %d of %d is out of order: %v", r, cp, p)
				}
				last = s.From + s.N - 1
				if first[last] > int32(s.From) {
					t.Errorf("span %v crosses into another document", s)
				}
				for at := s.From; at <= last; at++ {
					seen[at]++
					pairs += at - int64(first[at]) + 1
				}
			}
			work = append(work, pairs)
		}
		if slices.Max(seen[:]) != 1 || slices.Min(seen[:]) != 1 {
			t.Errorf("cp %d: positions are held %v times", cp, seen)
		}
		if most, least := slices.Max(work), slices.Min(work); float64(most) > 1.25*float64(least) {
			t.Errorf("cp %d: parts have %v pairs", cp, work)
		}
	}
	if got := fmt.Sprint(documents.ZigZag(0, 4)); got != "[{0 1} {7 1} {8 1} {9 5} {44 5} {50 2} {64 2} {66 3} {87 3} {95 1}]" {
		t.Errorf("part 0 of 4 is %s", got)
	}
}

// Claim: rows lie position by position, within one by sample.
func TestFlatten(t *testing.T) {
	samples := [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {10, 11, 12, 13, 14, 15, 16, 17}}
	if got := fmt.Sprint(Flatten(AllPositions(8).ZigZag(0, 2), samples)); got != "[0 10 1 11 6 16 7 17]" {
		t.Errorf("%s", got)
	}
}

// Claim: with the zig-zag cut all ranks have equal work in every step of a ring, and over
// the steps all pairs that a causal mask leaves once.
func TestPairsAreEqualPerRankAndStep(t *testing.T) {
	const n = 48
	for _, cp := range []int{1, 2, 3, 4} {
		total := int64(0)
		for step := range cp {
			var work []int64
			for rank := range cp {
				mine, theirs := AllPositions(n).ZigZag(rank, cp), AllPositions(n).ZigZag((rank+cp-step)%cp, cp)
				slow := int64(0)
				for _, q := range mine {
					for i := q.From; i < q.From+q.N; i++ {
						for _, k := range theirs {
							for j := k.From; j < k.From+k.N; j++ {
								if j <= i {
									slow++
								}
							}
						}
					}
				}
				if got := mine.Pairs(theirs); got != slow {
					t.Fatalf("cp %d, rank %d, step %d: %d pairs, counted %d", cp, rank, step, got, slow)
				}
				work = append(work, slow)
				total += slow
			}
			if slices.Min(work) != slices.Max(work) {
				t.Errorf("cp %d, step %d: ranks have %v pairs", cp, step, work)
			}
		}
		if total != n*(n+1)/2 {
			t.Errorf("cp %d: %d pairs of %d", cp, total, n*(n+1)/2)
		}
	}
}
