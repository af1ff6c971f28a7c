package dataset

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
)

// interleave fills the arrays of a blend, in several stretches at once where
// there are processors for it. The state before a step is the members' counts.
// In the middle of a blend nobody knows them exactly without having been there,
// but nearly: every member is within one sample of its share. So each stretch
// starts from a guess. Its choices soon agree with the true ones, since a member
// that was guessed too low is taken sooner; the stretch before it runs on until
// the counts are equal, replacing what the guess got wrong. What follows equal
// counts is equal.
func interleave(shares []float64, left []int64, member []int16, number []int64) {
	parts := int64(min(runtime.GOMAXPROCS(0), 8))
	if int64(len(member)) < parts<<17 {
		parts = 0
	}
	interleaveIn(parts, shares, left, member, number)
}

// interleaveIn cuts the blend into twice as many stretches as parts, two for each
// processor (kernel.c does two at once), and says how many steps were taken twice.
func interleaveIn(parts int64, shares []float64, left []int64, member []int16, number []int64) (again int64) {
	n := int64(len(member))
	if n < 2*parts {
		parts = 0 // one stretch
	}
	count := max(2*parts, 1)
	begin := func(p int64) int64 {
		if p == count {
			return n
		}
		return p * (n / count)
	}
	guesses, ends := make([][]int64, count), make([][]int64, count)
	var wait sync.WaitGroup
	for p := int64(0); p < count; p += 2 {
		two := min(p+2, count)
		for k := p; k < two; k++ {
			guesses[k] = guess(shares, left, begin(k))
		}
		wait.Go(func() {
			copy(ends[p:two], stretches(shares, left, guesses[p:two], begin(p), int(n/count), member[begin(p):begin(two)], number[begin(p):begin(two)]))
		})
	}
	wait.Wait()
	counts := ends[0] // the true ones before the stretch that comes next
	for p := int64(1); p < count; p++ {
		end, v := begin(p+1), newInterleaver(shares, left, counts)
		v.sortLanes(begin(p))
		at := v.correct(begin(p), guesses[p], member[:end], number[:end])
		again += at - begin(p)
		if counts = ends[p]; at == end {
			counts = v.taken
		}
	}
	return again
}

// stretches fills the arrays from step t on, in pieces of size steps (the last one
// continues to the end) that begin with these counts, and gives the counts after each.
func stretches(shares []float64, left []int64, counts [][]int64, t int64, size int, member []int16, number []int64) [][]int64 {
	all := size * len(counts)
	if after := blendKernel(shares, left, counts, t, member[:all], number[:all]); after != nil {
		if over := blendKernel(shares, left, after[len(after)-1:], t+int64(all), member[all:], number[all:]); over != nil {
			after[len(after)-1] = over[0]
		}
		return after
	}
	after := make([][]int64, len(counts))
	for k := range counts {
		from, to := k*size, (k+1)*size
		if k == len(counts)-1 {
			to = len(member)
		}
		v := newInterleaver(shares, left, counts[k])
		v.run(t+int64(from), member[from:to], number[from:to])
		after[k] = v.taken
	}
	return after
}

// correct continues a true run over a stretch that began at step t with guessed
// counts, until they are the true ones, and says where that was.
func (v *interleaver) correct(t int64, guessed []int64, member []int16, number []int64) int64 {
	off, wrong := v.difference(guessed)
	add := func(i int16, by int64) {
		if off[i] == 0 {
			wrong++
		}
		if off[i] += by; off[i] == 0 {
			wrong--
		}
	}
	for ; t < int64(len(member)) && wrong > 0; t++ {
		was := member[t]
		member[t], number[t] = v.step(t)
		add(was, -1)
		add(member[t], 1)
	}
	return t
}

// difference is the true counts less the guessed ones, and how many differ.
func (v *interleaver) difference(guessed []int64) (off []int64, wrong int) {
	off = make([]int64, len(guessed))
	for i, g := range guessed {
		off[i] = v.taken[i] - g
		if off[i] != 0 {
			wrong++
		}
	}
	return off, wrong
}

// guess is how many samples each member has probably given before step t.
func guess(shares []float64, left []int64, t int64) []int64 {
	counts, rest := make([]int64, len(shares)), t
	order := make([]int, len(shares))
	for i, s := range shares {
		order[i] = i
		counts[i] = min(left[i], int64(s*float64(t)))
		rest -= counts[i]
	}
	behind := func(i int) float64 {
		if counts[i] == left[i] {
			return math.Inf(-1)
		}
		return shares[i]*float64(t) - float64(counts[i])
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(behind(b), behind(a)) })
	for k := 0; rest != 0; k++ {
		i := order[k%len(order)]
		if rest < 0 && counts[i] > 0 { // rounding gave one too many
			counts[i]--
			rest++
		} else if rest > 0 && counts[i] < left[i] {
			counts[i]++
			rest--
		}
	}
	return counts
}
