package dataset

import (
	"math"
	"slices"
)

// The order of a blend: sample t comes from the member whose count is furthest
// behind its share, that is with the largest
//
//	share·max(t,1) - count    (two roundings, as Megatron's helper has them)
//
// and from the first of these among equals. To compare all members for every
// sample is slow where there are hundreds. But the largest is nearly the same
// from sample to sample, and every member's value climbs steadily until it is
// chosen, so those that have climbed to a height just below it are the only ones
// to compare: the candidates. A member that falls below enters a calendar at the
// step where it will be back.
//
// The result is exact whatever the height: a member below it is smaller than a
// candidate above it. Where no candidate reaches it, it is set again.

// lane is members with equal shares: they take turns, so one value stands for
// them all, that of the next.
type lane struct {
	members []int32
	left    []int64 // samples that each member still has
	next    int
	inverse float64 // of the share
	from    int64   // step from which it may be a candidate again
	link    int32   // the lane after it on its page of the calendar, -1 none
	runner
}

// runner is what a lane is compared by.
type runner struct {
	share  float64
	count  float64 // samples taken from member
	member int32   // the lane's next
	lane   int32
}

// value is how far the runner is behind at step at (as a float, at least 1). The
// conversion keeps Go from fusing the multiplication with the subtraction.
func (r *runner) value(at float64) float64 { return float64(r.share*at) - r.count }

type interleaver struct {
	lanes      []lane
	candidates []runner
	calendar   [pages]int32
	height     float64
	values     []float64       // sortLanes's
	order      [2 * many]int64 // best's
	taken      []int64         // by member
}

const (
	// pages of the calendar; what comes later waits on the last page of a turn.
	pages = 1 << 8
	// The height is set so that few lanes are above it, and again when they have
	// become many or none.
	few  = 4
	many = 16
)

// newInterleaver groups members by share. left is how many samples each has,
// counts how many of them were taken before the step that comes first.
func newInterleaver(shares []float64, left, counts []int64) *interleaver {
	v := &interleaver{candidates: make([]runner, 0, len(shares)), taken: slices.Clone(counts)}
	at := map[float64]int{}
	for i, s := range shares {
		if left[i] == counts[i] {
			continue
		}
		k, ok := at[s]
		if !ok {
			k = len(v.lanes)
			at[s] = k
			v.lanes = append(v.lanes, lane{inverse: 1 / s, runner: runner{share: s, count: float64(counts[i]), member: int32(i), lane: int32(k)}})
		}
		l := &v.lanes[k]
		if float64(counts[i]) < l.count { // the others have had their turn
			l.count, l.member, l.next = float64(counts[i]), int32(i), len(l.members)
		}
		l.members, l.left = append(l.members, int32(i)), append(l.left, left[i]-counts[i])
	}
	return v
}

// run fills the arrays from step t on: member and number within the member of
// every sample.
func (v *interleaver) run(t int64, member []int16, number []int64) {
	v.sortLanes(t)
	for i := range member {
		member[i], number[i] = v.step(t + int64(i))
	}
}

// step takes sample t.
func (v *interleaver) step(t int64) (member int16, number int64) {
	if v.calendar[t%pages] >= 0 {
		if v.turn(t); len(v.candidates) > many {
			v.sortLanes(t)
		}
	}
	at := float64(max(t, 1))
	best, behind := v.best(at)
	for behind < v.height {
		v.sortLanes(t)
		best, behind = v.best(at)
	}
	r := &v.candidates[best]
	member, number = int16(r.member), int64(r.count)
	v.take(best, t)
	return member, number
}

// best is the index of the candidate to take, and its value; without candidates
// that is below every height. Which one it is cannot be foreseen, so it is found
// without branches: values are compared as integers of the same order.
func (v *interleaver) best(at float64) (int, float64) {
	if len(v.candidates) > len(v.order) {
		return v.bestOfMany(at)
	}
	order := v.order[:len(v.candidates)]
	top := int64(math.MinInt64)
	for i := range order {
		r := &v.candidates[i]
		e := ordered(r.value(at))
		order[i] = e
		top = max(top, e)
	}
	index, equal := 0, 0
	for i, e := range order {
		is := int(bit(e == top))
		index |= i & -is
		equal += is
	}
	if equal != 1 {
		return v.bestOfMany(at)
	}
	return index, v.candidates[index].value(at)
}

// bestOfMany is best as its definition says it.
func (v *interleaver) bestOfMany(at float64) (index int, behind float64) {
	behind = math.Inf(-1)
	for i := range v.candidates {
		r := &v.candidates[i]
		if e := r.value(at); e > behind || e == behind && r.member < v.candidates[index].member {
			index, behind = i, e
		}
	}
	return index, behind
}

// ordered gives integers that compare as the floats do (a difference of equals is +0, never -0).
func ordered(e float64) int64 {
	b := int64(math.Float64bits(e))
	return b ^ int64(uint64(b>>63)>>1)
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// take counts a sample of a candidate, and drops it where it falls below the
// height.
func (v *interleaver) take(index int, t int64) {
	l := &v.lanes[v.candidates[index].lane]
	v.taken[l.member]++
	l.left[l.next]--
	if l.left[l.next] == 0 { // equal shares of an end are equal numbers: the lane's members end in turn
		l.members, l.left = slices.Delete(l.members, l.next, l.next+1), slices.Delete(l.left, l.next, l.next+1)
		l.next--
	}
	if l.next++; l.next >= len(l.members) {
		l.next = 0
		l.count++
	}
	if len(l.members) > 0 {
		l.member = l.members[l.next]
		if l.value(float64(t+1)) >= v.height {
			v.candidates[index] = l.runner
			return
		}
		v.enter(l, t+1)
	}
	last := len(v.candidates) - 1
	v.candidates[index] = v.candidates[last]
	v.candidates = v.candidates[:last]
}

// enter puts a lane into the calendar, at a step where it is surely not yet at
// the height, or just there, and not before step t.
func (v *interleaver) enter(l *lane, t int64) {
	l.from = t
	if back := (l.count + v.height) * l.inverse; back > float64(t)+1 {
		l.from = math.MaxInt64
		if back < 1<<50 {
			l.from = int64(back) - 1
		}
	}
	page := &v.calendar[min(l.from, t+pages-1)%pages]
	l.link, *page = *page, l.lane
}

// turn makes candidates of the lanes on today's page.
func (v *interleaver) turn(t int64) {
	k := v.calendar[t%pages]
	v.calendar[t%pages] = -1
	for k >= 0 {
		l := &v.lanes[k]
		k = l.link
		if l.from > t {
			page := &v.calendar[min(l.from, t+pages-1)%pages]
			l.link, *page = *page, l.lane
		} else {
			v.candidates = append(v.candidates, l.runner)
		}
	}
}

// sortLanes sets the height to a value near the largest at step t and sorts all
// lanes by it.
func (v *interleaver) sortLanes(t int64) {
	at := float64(max(t, 1))
	v.values = v.values[:0]
	for i := range v.lanes {
		if l := &v.lanes[i]; len(l.members) > 0 {
			v.values = append(v.values, l.value(at))
		}
	}
	v.height = fewth(v.values)
	v.candidates = v.candidates[:0]
	for i := range v.calendar {
		v.calendar[i] = -1
	}
	for i := range v.lanes {
		l := &v.lanes[i]
		switch {
		case len(l.members) == 0:
		case l.value(at) < v.height:
			v.enter(l, t+1)
		default:
			v.candidates = append(v.candidates, l.runner)
		}
	}
}

// fewth is the few-th largest value, the smallest where there are fewer.
func fewth(values []float64) float64 {
	var top [few]float64 // falling
	n := 0
	for _, e := range values {
		if n == few && e <= top[few-1] {
			continue
		}
		i := min(n, few-1)
		for ; i > 0 && top[i-1] < e; i-- {
			top[i] = top[i-1]
		}
		top[i] = e
		n = min(n+1, few)
	}
	return top[max(n-1, 0)]
}
