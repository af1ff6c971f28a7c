package inference

import (
	"cmp"
	"math"
	"slices"

	"monotron/csrc/device"
)

// Sampling says how the next token is chosen from its logits. The zero value is greedy.
type Sampling struct {
	Temperature float64 // divides the logits; 0: greedy
	TopK        int     // the likeliest so many; 0: all
	TopP        float64 // of what TopK left, the fewest that hold this much; 0 or 1: all
	MinP        float64 // of those, what has this fraction of the likeliest's probability; 0: all
	Seed        uint64
	Number      uint32 // of this text among those of a request: each draws its own

	Repetition    float64 // divides (where negative, multiplies) logits of tokens that occurred, also in the prompt; 0 or 1: off
	Presence      float64 // taken from logits of tokens that were generated
	Frequency     float64 // taken from them as often as they were
	Bias          map[int32]float64
	NoRepeatNgram int // 0: repeats are fine
}

// change applies all that looks at the text so far: ids, of which the first `prompt` were given.
func (s *Sampling) change(x []float64, ids []int32, prompt int) {
	if s.Repetition != 0 && s.Repetition != 1 {
		for id := range counts(ids) {
			if x[id] > 0 {
				x[id] /= s.Repetition
			} else {
				x[id] *= s.Repetition
			}
		}
	}
	if s.Presence != 0 || s.Frequency != 0 {
		for id, n := range counts(ids[prompt:]) {
			x[id] -= s.Presence + s.Frequency*float64(n)
		}
	}
	for id, b := range s.Bias {
		x[id] += b
	}
	banRepeats(x, ids, s.NoRepeatNgram)
}

// changes tells whether change does anything.
func (s *Sampling) changes() bool {
	return s.Repetition != 0 && s.Repetition != 1 || s.Presence != 0 || s.Frequency != 0 || len(s.Bias) > 0 || s.NoRepeatNgram > 0
}

func counts(ids []int32) map[int32]int {
	n := map[int32]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}

// choose picks the nth new token from logits, or log-probabilities, x. What it draws depends
// on Seed, Number and n alone.
func (s *Sampling) choose(x []float64, n int) int32 {
	if s.Temperature == 0 {
		return int32(argmax(x))
	}
	r := newRanking(x)
	top := x[r.at(0)]
	weight := func(id int32) float64 { return math.Exp((x[id] - top) / s.Temperature) }
	most, total := len(x), 0.0
	if s.TopK > 0 {
		most = min(s.TopK, most)
	}
	if most < len(x) {
		for i := range most {
			total += weight(r.at(i))
		}
	} else {
		for id := range x {
			total += weight(int32(id))
		}
	}
	if s.TopP > 0 && s.TopP < 1 || s.MinP > 0 {
		most, total = s.nucleus(r, weight, most, total)
	}
	w := device.Philox(device.StreamKey(s.Seed, "generate"), [4]uint32{uint32(n), s.Number})
	target := float64(w[0]) / (1 << 32) * total
	for i := range most {
		if target -= weight(r.at(i)); target < 0 {
			return r.at(i)
		}
	}
	return r.at(0)
}

// nucleus keeps, of the `most` likeliest, the fewest whose mass reaches TopP and whose weight
// MinP; at least one.
func (s *Sampling) nucleus(r *ranking, weight func(int32) float64, most int, total float64) (int, float64) {
	least, goal := s.MinP, math.Inf(1) // the likeliest has weight 1
	if s.TopP > 0 && s.TopP < 1 {
		goal = s.TopP * total
	}
	mass := 0.0
	for i := range most {
		w := weight(r.at(i))
		if i > 0 && w < least {
			return i, mass
		}
		if mass += w; mass >= goal {
			return i + 1, mass
		}
	}
	return most, mass
}

// ranking is ids by falling x, of equals the lower first, sorted as far as somebody looks.
type ranking struct {
	x      []float64
	ids    []int32
	sorted int
}

func newRanking(x []float64) *ranking {
	ids := make([]int32, len(x))
	for i := range ids {
		ids[i] = int32(i)
	}
	return &ranking{x: x, ids: ids}
}

func (r *ranking) compare(a, b int32) int {
	return cmp.Or(cmp.Compare(r.x[b], r.x[a]), cmp.Compare(a, b))
}

// at is the id of rank i.
func (r *ranking) at(i int) int32 {
	for i >= r.sorted {
		rest := r.ids[r.sorted:]
		n := min(len(rest), max(64, 7*r.sorted))
		if n < len(rest) {
			r.divide(rest, n)
		}
		slices.SortFunc(rest[:n], r.compare)
		r.sorted += n
	}
	return r.ids[i]
}

// divide brings the n first of ids to the front, in any order (Hoare's selection).
func (r *ranking) divide(ids []int32, n int) {
	for len(ids) > 1 && n > 0 && n < len(ids) {
		pivot := ids[len(ids)/2]
		i, j := 0, len(ids)-1
		for i <= j {
			for r.compare(ids[i], pivot) < 0 {
				i++
			}
			for r.compare(ids[j], pivot) > 0 {
				j--
			}
			if i <= j {
				ids[i], ids[j] = ids[j], ids[i]
				i++
				j--
			}
		}
		switch {
		case n <= j+1:
			ids = ids[:j+1]
		case n > i:
			ids, n = ids[i:], n-i
		default:
			return
		}
	}
}

// argmax is the lowest place of the largest value.
func argmax[T float32 | float64](x []T) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}
