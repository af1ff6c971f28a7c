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
	if int64(len(member)) < parts<<16 {
		parts = 1
	}
	interleaveIn(parts, shares, left, member, number)
}

// interleaveIn also says how many steps were taken twice.
func interleaveIn(parts int64, shares []float64, left []int64, member []int16, number []int64) (again int64) {
	n := int64(len(member))
	begin := func(p int64) int64 { return p * n / parts }
	guesses, ends := make([][]int64, parts), make([][]int64, parts)
	var wait sync.WaitGroup
	for p := range parts {
		guesses[p] = guess(shares, left, begin(p))
		wait.Go(func() {
			ends[p] = stretch(shares, left, guesses[p], begin(p), member[begin(p):begin(p+1)], number[begin(p):begin(p+1)])
		})
	}
	wait.Wait()
	counts := ends[0] // the true ones before the stretch that comes next
	for p := int64(1); p < parts; p++ {
		end, v := begin(p+1), newInterleaver(shares, left, counts)
		v.settle(begin(p))
		at := v.correct(begin(p), guesses[p], member[:end], number[:end])
		again += at - begin(p)
		if counts = ends[p]; at == end {
			counts = v.taken
		}
	}
	return again
}

// stretch fills the arrays from step t on, where counts samples were taken, and
// gives the counts after it.
func stretch(shares []float64, left, counts []int64, t int64, member []int16, number []int64) []int64 {
	if after, ok := blendKernel(shares, left, counts, t, member, number); ok {
		return after
	}
	v := newInterleaver(shares, left, counts)
	v.run(t, member, number)
	return v.taken
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
