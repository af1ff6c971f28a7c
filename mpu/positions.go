package mpu

// Span is positions [From, From+N) of a sample.
type Span struct{ From, N int64 }

// Positions says which positions of every sample of a micro-batch a rank has, in the
// order of its rows: of a tensor [n·b, ...] row i·b+j is the i-th of them, of sample j.
// Whatever depends on where a row lies (the cut of a batch, learned positions, dropout's
// counters, losses) asks it.
type Positions []Span

// AllPositions is a sample whole.
func AllPositions(n int64) Positions { return Positions{{0, n}} }

// Len is the number of positions.
func (p Positions) Len() int64 {
	n := int64(0)
	for _, s := range p {
		n += s.N
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
// 2·parts must divide Len.
func (p Positions) ZigZag(part, parts int) Positions {
	if parts == 1 {
		return p
	}
	return append(p.Cut(part, 2*parts), p.Cut(2*parts-1-part, 2*parts)...)
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
