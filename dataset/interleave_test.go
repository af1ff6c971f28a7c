package dataset

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainOrder is Megatron's rule as its helper writes it: all members compared
// for every sample.
func plainOrder(shares []float64, left []int64, n int) (member []int16, number []int64) {
	counts := make([]int64, len(shares))
	for t := range n {
		best, behind, at := -1, 0.0, math.Max(float64(t), 1)
		for i, share := range shares {
			if counts[i] >= left[i] {
				continue
			}
			if e := float64(share*at) - float64(counts[i]); best < 0 || e > behind {
				best, behind = i, e
			}
		}
		member, number = append(member, int16(best)), append(number, counts[best])
		counts[best]++
	}
	return member, number
}

// someShares draws weights of one of several kinds: like ones, equal ones, ones
// with one that is far larger, ones of all sizes.
func someShares(r *rand.Rand, n int) []float64 {
	w := make([]float64, n)
	kind := r.IntN(5)
	for i := range w {
		switch w[i] = r.Float64() + 1e-3; kind {
		case 1:
			w[i] = float64(1 + r.IntN(3))
		case 2:
			w[i] = math.Exp(20 * w[i])
		case 3:
			w[i] = 1
		case 4:
			if i == n/2 {
				w[i] = 1e6
			}
		}
	}
	return normalize(w)
}

// Claim: the fast order is the plain one, for blends with weights and for those
// that use every sample once.
func TestInterleaveIsMegatronsOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	steps, again := 0, int64(0)
	for round := range 300 {
		n := 1 + r.IntN(1+round%130)
		shares, left, size := someShares(r, n), make([]int64, n), 1+r.IntN(4000)
		for i := range left {
			left[i] = math.MaxInt64
		}
		if round%2 == 1 { // sizes in place of weights
			total := 0
			for i := range left {
				left[i] = int64(r.IntN(40)) + int64(1000*shares[i])
				total += int(left[i])
			}
			if size = total; size == 0 {
				continue
			}
			for i := range shares {
				shares[i] = float64(left[i]) / float64(total)
			}
		}
		wantMember, wantNumber := plainOrder(shares, left, size)
		member, number := make([]int16, size), make([]int64, size)
		again += interleaveIn(1+r.Int64N(4), shares, left, member, number)
		steps += size
		if !slices.Equal(member, wantMember) || !slices.Equal(number, wantNumber) {
			t.Fatalf("round %d: %d members, %d samples: another order; shares %v, left %v", round, n, size, shares, left)
		}
	}
	if again > int64(steps/3) {
		t.Errorf("%d of %d steps were taken twice: guesses do not become true", again, steps)
	}
}

// Claim: kernel.c takes the plain order, from any step and counts on, and counts
// as the Go path does.
func TestBlendKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 200 {
		n := 1 + r.IntN(1+round%260)
		shares, left, size := someShares(r, n), make([]int64, n), 1+r.IntN(3000)
		for i := range left {
			if left[i] = math.MaxInt64; round%2 == 1 {
				left[i] = int64(size/n) + 1 + r.Int64N(50)
			}
		}
		member, number := make([]int16, size), make([]int64, size)
		counts, ok := blendKernel(shares, left, make([]int64, n), 0, member, number)
		if !ok && n <= 256 {
			t.Skip("no kernel on this machine")
		} else if !ok {
			continue
		}
		wantMember, wantNumber := plainOrder(shares, left, size)
		wantCounts := make([]int64, n)
		for _, i := range wantMember {
			wantCounts[i]++
		}
		if !slices.Equal(member, wantMember) || !slices.Equal(number, wantNumber) || !slices.Equal(counts, wantCounts) {
			t.Fatalf("round %d: %d members, %d samples: another order; shares %v, left %v", round, n, size, shares, left)
		}
		half := size / 2
		before := make([]int64, n)
		for _, i := range wantMember[:half] {
			before[i]++
		}
		if _, ok := blendKernel(shares, left, before, int64(half), member[half:], number[half:]); !ok && half < size || !slices.Equal(member, wantMember) || !slices.Equal(number, wantNumber) {
			t.Fatalf("round %d: another order from step %d on", round, half)
		}
	}
}

// Claim: kernel.c shuffles as the Go path does and leaves the generator where that
// leaves it.
func TestShuffleKernel(t *testing.T) {
	if !shuffleInC {
		t.Skip("no kernel on this machine")
	}
	c, plain := newMersenne(7), newMersenne(7)
	for _, n := range []int{0, 1, 2, 3, 10, 255, 256, 257, 258, 511, 512, 513, 1000, 65536, 65537, 300001} {
		a, b := make([]uint32, n), make([]uint32, n)
		number(a, 0)
		number(b, 0)
		shuffle(c, a)
		shuffleInGo(plain, b)
		if !slices.Equal(a, b) || *c != *plain {
			t.Fatalf("%d items are shuffled in another way", n)
		}
	}
}

func BenchmarkInterleave100(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	shares, left := make([]float64, 100), make([]int64, 100)
	for i := range shares {
		shares[i], left[i] = r.Float64(), math.MaxInt64
	}
	shares = normalize(shares)
	const n = 10_000_000
	member, number := make([]int16, n), make([]int64, n)
	for b.Loop() {
		interleave(shares, left, member, number)
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e6, "Msamples/s")
}
