package plan

import (
	"math"
	"slices"
)

// Sample is a run on paper with the seconds that it took.
type Sample struct {
	Clock   *Clock
	Seconds float64
}

// Fit finds the constants of a machine under which samples take what was measured: least
// squares of relative errors, those beyond 3 percent counting less (Huber), from the
// machine's own numbers on. Few or like samples leave constants near those. The error is of
// a schedule that cannot be.
func Fit(samples []Sample) (Constants, error) {
	k := [3]float64{1, 1, 1}
	low, high := [3]float64{0.2, 0.1, 0.1}, [3]float64{10, 10, 20}
	const huber, prior = 0.03, 1e-4
	for range 80 {
		var a [3][4]float64 // normal equations of the step
		for _, s := range samples {
			at, err := s.Clock.about(constantsOf(k))
			if err != nil {
				return nominal, err
			}
			off := (s.Seconds - at) / s.Seconds
			weight := 1 / math.Max(1, math.Abs(off)/huber)
			var slope [3]float64
			for j := range slope {
				moved, d := k, 1e-4*k[j]+1e-6
				moved[j] += d
				there, _ := s.Clock.about(constantsOf(moved)) // the same schedule
				slope[j] = (there - at) / d / s.Seconds
			}
			for i := range slope {
				for j := range slope {
					a[i][j] += weight * slope[i] * slope[j]
				}
				a[i][3] += weight * slope[i] * off
			}
		}
		for i := range k {
			a[i][i] += prior
			a[i][3] += prior * (1 - k[i])
		}
		step := solve(a)
		for i := range k {
			k[i] = math.Min(high[i], math.Max(low[i], k[i]+0.7*step[i]))
		}
	}
	return constantsOf(k), nil
}

func constantsOf(k [3]float64) Constants { return Constants{k[0], k[1], k[2]} }

// solve is Gauss's elimination with pivots.
func solve(a [3][4]float64) (x [3]float64) {
	for c := range 3 {
		best := c
		for r := c; r < 3; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[best][c]) {
				best = r
			}
		}
		if a[c], a[best] = a[best], a[c]; a[c][c] == 0 {
			return x
		}
		for r := range 3 {
			if r == c {
				continue
			}
			f := a[r][c] / a[c][c]
			for j := range 4 {
				a[r][j] -= f * a[c][j]
			}
		}
	}
	for i := range x {
		x[i] = a[i][3] / a[i][i]
	}
	return x
}

// RankCorrelation is Spearman's: of the ranks in order, equal values sharing theirs.
func RankCorrelation(x, y []float64) float64 {
	a, b := order(x), order(y)
	mean := float64(len(a)-1) / 2
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+(a[i]-mean)*(b[i]-mean), aa+(a[i]-mean)*(a[i]-mean), bb+(b[i]-mean)*(b[i]-mean)
	}
	return ab / math.Sqrt(aa*bb)
}

func order(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case x[i] < x[j]:
			return -1
		case x[i] > x[j]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j+1 < len(order) && x[order[j+1]] == x[order[i]] {
			j++
		}
		for k := i; k <= j; k++ {
			out[order[k]] = float64(i+j) / 2
		}
		i = j + 1
	}
	return out
}
