package ref

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"monotron/csrc/device"
)

// Sample ranks the ids of each row by sorting them, as far as needed.
func (b *backend) Sample(a *device.SampleArgs) {
	b.spread(a.Logits.Shape[0], 1, func(row, _ int64) {
		raw, best := make([]float64, a.Columns), int64(0)
		loadRow(raw, a.Logits, row)
		if a.Best.Given() {
			best = a.Best.Shape[1]
		}
		// -1: no token, as a logit of the row is not finite.
		ids(a.IDs)[row] = -1
		for _, x := range raw {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return
			}
		}
		// The most probable ids and their logits, by falling logit; behind the last column -1.
		r := newRanking(raw)
		for i := range best {
			id, x := int32(-1), 0.0
			if i < a.Columns {
				id = r.at(int(i))
				x = raw[id]
			}
			ids(a.Best)[row*best+i] = id
			setOne(a.BestLogits, row*best+i, x)
		}
		// What log probabilities need.
		if a.Max.Given() {
			setOne(a.Max, row, raw[r.at(0)])
			unsafe.Slice((*uint64)(a.Sum.Data), a.Sum.Len())[row] = newWeighed(r, 1).sum(len(raw))
		}
		// A token that is given, or one drawn by the row's rules.
		id := ids(a.Rules)[4*row]
		if id < 0 {
			id = choose(a, row, raw)
		}
		ids(a.IDs)[row] = id
		setOne(a.Chosen, row, raw[id])
	})
}

// choose picks a row's token by its rules.
func choose(a *device.SampleArgs, row int64, raw []float64) int32 {
	r := newRanking(edited(a, row, raw))
	temperature, topP, minP := one(a.Numbers, 3*row), one(a.Numbers, 3*row+1), one(a.Numbers, 3*row+2)
	if temperature == 0 || math.IsInf(r.x[r.at(0)], 0) {
		return r.at(0)
	}
	w, topK, draw := newWeighed(r, temperature), int(ids(a.Rules)[4*row+1]), uint32(ids(a.Rules)[4*row+2])
	most := len(raw)
	if topK > 0 {
		most = min(topK, most)
	}
	left := w.sum(most)
	if minP > 0 {
		left = min(left, w.atLeast(minP*device.SampleFull))
	}
	if topP > 0 && topP < 1 {
		_, through := w.first(max(1, uint64(topP*float64(w.sum(most)))))
		left = min(left, through)
	}
	high, low := bits.Mul64(uint64(draw), left)
	id, _ := w.first(high<<32 + low>>32 + 1)
	return id
}

// edited is a row's logits as the choice sees them.
func edited(a *device.SampleArgs, row int64, raw []float64) []float64 {
	if !a.EditIDs.Given() {
		return raw
	}
	x, from, to := slices.Clone(raw), int64(ids(a.Rules)[4*row+3]), a.EditIDs.Len()
	if row+1 < a.Rules.Shape[0] {
		to = int64(ids(a.Rules)[4*row+7])
	}
	for i := from; i < to; i++ {
		id, r, add := ids(a.EditIDs)[i], float32(one(a.EditValues, 2*i)), float32(one(a.EditValues, 2*i+1))
		v := float32(x[id])
		if v > 0 {
			v /= r
		} else {
			v *= r
		}
		x[id] = float64(v + add)
	}
	return x
}

// weighed are ranked ids with their weights.
type weighed struct {
	*ranking
	of []uint64
}

func newWeighed(r *ranking, temperature float64) weighed {
	w, top := weighed{r, make([]uint64, len(r.x))}, r.x[r.at(0)]
	for id, x := range r.x {
		w.of[id] = weight((x - top) / temperature)
	}
	return w
}

// sum is what the first n weigh.
func (w weighed) sum(n int) (sum uint64) {
	if n == len(w.of) {
		for _, x := range w.of {
			sum += x
		}
		return sum
	}
	for i := range n {
		sum += w.of[w.at(i)]
	}
	return sum
}

// atLeast is what those weigh that weigh so much each.
func (w weighed) atLeast(least float64) (sum uint64) {
	for _, x := range w.of {
		if float64(x) >= least {
			sum += x
		}
	}
	return sum
}

// first is the first id that brings the sum to a goal, with the sum.
func (w weighed) first(goal uint64) (id int32, sum uint64) {
	for i := range w.of {
		id = w.at(i)
		if sum += w.of[id]; sum >= goal {
			break
		}
	}
	return id, sum
}

// weight is mt_weight of sample.h.
func weight(d float64) uint64 {
	const least, magic, integers = -32, 0x1.8p52, 0x1p52
	if d < least {
		return 0
	}
	t := math.FMA(d, 0x1.71547652b82fep0, magic)
	n := t - magic
	r := math.FMA(n, -0x1.abc9e3b39803fp-56, math.FMA(n, -0x1.62e42fefa39efp-1, d))
	p := 1.0 / 39916800
	for _, c := range [...]float64{1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1} {
		p = math.FMA(p, r, c)
	}
	scale := math.Float64frombits((math.Float64bits(t) - math.Float64bits(magic) + 44 + 1023) << 52)
	return math.Float64bits(p*scale+integers) - math.Float64bits(integers)
}

// ranking is ids by falling x, of equals the lower first, sorted as far as needed.
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
