package mpu

import (
	"cmp"
	"slices"
)

// Span is positions [From, From+N) of a sample.
type Span struct{ From, N int64 }

// Positions says which positions of every sample of a micro-batch a rank has, in the
// order of its rows: of a tensor [n·b, ...] row i·b+j is the i-th of them, of sample j.
// Whatever depends on where a row lies (the cut of a batch, learned positions, dropout's
// counters, losses) asks it.
type Positions []Span

// AllPositions is an uncut sample.
func AllPositions(n int64) Positions { return Positions{{0, n}} }

// Len is the number of positions.
func (p Positions) Len() int64 {
	n := int64(0)
	for _, s := range p {
		n += s.N
	}
	return n
}

// Longest is the length of the longest span.
func (p Positions) Longest() (n int64) {
	for _, s := range p {
		n = max(n, s.N)
	}
	return n
}

// Cut is the part-th of equal parts, in the order of the rows: what a rank has outside
// the region under sequence parallelism (Korthikanti et al., arXiv 2205.05198). Parts
// must divide Len.
func (p Positions) Cut(part, parts int) Positions {
	n := p.Len() / int64(parts)
	return p.slice(n*int64(part), n)
}

// ZigZag is stretches `part` and 2·parts−1−part of 2·parts equal ones, so that under a
// causal mask every part has the same work: Megatron's cut for context parallelism.
// Of several spans, documents which do not see each other, each is cut so by itself, and
// what no 2·parts divide, their last positions, as if it were one more. Parts are equally
// long, in the order of positions. 2·parts must divide Len.
func (p Positions) ZigZag(part, parts int) Positions {
	if parts == 1 {
		return p
	}
	var own, rest Positions
	unit := int64(2 * parts)
	for _, s := range p {
		full := s.N / unit * unit
		own = append(own, Positions{{s.From, full}}.stretches(part, parts)...)
		if full < s.N {
			rest = append(rest, Span{s.From + full, s.N - full})
		}
	}
	if rest == nil {
		return own
	}
	return append(own, rest.stretches(part, parts)...).inOrder(p)
}

// stretches are the two of a part, of the spans laid end to end.
func (p Positions) stretches(part, parts int) Positions {
	n := p.Len() / int64(2*parts)
	return append(p.slice(n*int64(part), n), p.slice(n*int64(2*parts-1-part), n)...)
}

// inOrder sorts spans, and joins those that follow each other within one of documents.
func (p Positions) inOrder(documents Positions) (out Positions) {
	slices.SortFunc(p, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	begins := func(at int64) bool {
		_, found := slices.BinarySearchFunc(documents, at, func(s Span, at int64) int { return cmp.Compare(s.From, at) })
		return found
	}
	for _, s := range p {
		if n := len(out); n > 0 && out[n-1].From+out[n-1].N == s.From && !begins(s.From) {
			out[n-1].N += s.N
		} else {
			out = append(out, s)
		}
	}
	return out
}

// Documents are the spans that begin where first, the first position that each one sees,
// changes.
func Documents(first []int32) (all Positions) {
	for i, at := range first {
		if n := len(all); n == 0 || at != first[i-1] {
			all = append(all, Span{int64(i), 1})
		} else {
			all[n-1].N++
		}
	}
	return all
}

// Pairs is how many pairs of a query at one of these positions and a key at one of keys a
// causal mask leaves.
func (p Positions) Pairs(keys Positions) (n int64) {
	for _, k := range keys {
		seen := func(queries int64) int64 { // by so many queries from the first key's on
			queries = max(queries, 0)
			rising := min(queries, k.N)
			return rising*(rising+1)/2 + (queries-rising)*k.N
		}
		for _, q := range p {
			n += seen(q.From+q.N-k.From) - seen(q.From-k.From)
		}
	}
	return n
}

// before is how many of these lie before `at`.
func (p Positions) before(at int64) (n int64) {
	for _, s := range p {
		n += min(max(at-s.From, 0), s.N)
	}
	return n
}

// slice is n positions from the from-th on.
func (p Positions) slice(from, n int64) (out Positions) {
	for _, s := range p {
		lo, hi := max(from, 0), min(from+n, s.N)
		if lo < hi {
			out = append(out, Span{s.From + lo, hi - lo})
		}
		from -= s.N
	}
	return out
}

// Flatten lays what samples [b][s] have at these positions out as rows [n·b].
func Flatten[T any](p Positions, samples [][]T) []T {
	b := int64(len(samples))
	out := make([]T, p.Len()*b)
	at := int64(0)
	for _, s := range p {
		for j, row := range samples {
			for i, v := range row[s.From:][:s.N] {
				out[(at+int64(i))*b+int64(j)] = v
			}
		}
		at += s.N
	}
	return out
}
