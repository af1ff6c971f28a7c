package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// ring lets keys and values travel around the ranks (Liu et al., arXiv 2310.01889): while a
// block of them is used, the next one is on its way. With the zig-zag cut the ranks have
// equal work in every step: of their own block the three parts below the diagonal, of
// every other one two complete parts, of each document. What is summed over blocks is f32.
type ring struct {
	sharedSamples
	positions mpu.Positions
}

// block are the positions of the keys that are here after some steps.
func (e ring) block(step int) mpu.Positions {
	rows := e.context.Rows()
	return e.context.Positions(e.documents, (e.context.Row()+rows-step)%rows)
}

// longestKeys is the length of the longest span of any block.
func (e ring) longestKeys() (n int64) {
	for step := range e.context.Rows() {
		n = max(n, e.block(step).Longest())
	}
	return n
}

// parts calls f for each pair of a span of queries and one of the keys that are here which
// these can see.
func (e ring) parts(p *Pass, c core, step int, f func(query, key part)) {
	block := e.block(step)
	p.spans(e.positions, func(i int, at mpu.Span, rows func(Tensor) Tensor) {
		first := c.firstSeen(p, at)
		p.spans(block, func(j int, keysAt mpu.Span, keyRows func(Tensor) Tensor) {
			if keysAt.From <= at.From && keysAt.From+keysAt.N > first {
				f(part{i, at, rows}, part{j, keysAt, keyRows})
			}
		})
	})
}

// part is a span with its number and its rows.
type part struct {
	i    int
	at   mpu.Span
	rows func(Tensor) Tensor
}

func (e ring) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error) {
	out := c.newAttended(p, s, o, e.positions)
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	own := c.keys(p, tmp, p.DType, e.positions.Len())
	pack(p, own, h)
	sum := mergedParts{p: p, c: c, out: out, o: tmp.Alloc(statsType(p), o.Dims()...), begun: make([]bool, len(e.positions))}
	sum.part, sum.lse = tmp.Alloc(statsType(p), c.shape(p, e.positions.Longest())...), tmp.Alloc(statsType(p), p.Batch*c.groups*c.a.perGroup*e.positions.Longest())
	kv, next := own, tmp.Like(own)
	for step := range e.context.Rows() {
		last := step == e.context.Rows()-1
		var coming comm.Work
		if !last {
			coming = e.context.Around([]Tensor{kv}, []Tensor{next})
		}
		e.parts(p, c, step, func(query, key part) { sum.add(query, key, query.rows(h.q), key.rows(kv)) })
		if !last {
			if err := p.exchanged(coming.Wait); err != nil {
				return out, err
			}
			kv, next = next, kv
		}
	}
	p.D.Copy(o, sum.o)
	return out, nil
}

// mergedParts joins the attentions of queries to the blocks of keys.
type mergedParts struct {
	p         *Pass
	c         core
	out       attended
	o         Tensor // f32 [n·b, groups, heads of a group, d]: of the blocks so far
	part, lse Tensor // of one span of queries and one of keys
	begun     []bool // spans of queries that have seen keys
}

func (m *mergedParts) add(query, key part, q, kv Tensor) {
	o, lse := query.rows(m.o), m.out.lse[query.i]
	seen := heads{q: q, k: kv.Slice(2, 0, 1), v: kv.Slice(2, 1, 1)}
	if !m.begun[query.i] {
		m.begun[query.i] = true
		m.p.D.AttentionForward(m.c.call(m.p, query.at, key.at.From, o, lse, seen))
		return
	}
	other, otherLSE := m.part.Slice(0, 0, q.Shape[0]), m.lse.Slice(0, 0, lse.Len()).Reshape(lse.Dims()...)
	m.p.D.AttentionForward(m.c.call(m.p, query.at, key.at.From, other, otherLSE, seen))
	flat := func(t Tensor) Tensor { return t.Reshape(t.Shape[0], t.Shape[1]*t.Shape[2], t.Shape[3]) }
	m.p.D.AttentionMerge(device.AttentionMergeArgs{O: flat(o), Part: flat(other), LSE: lse, PartLSE: otherLSE})
}

// backward lets the keys go around once more, and with each block the sum of its gradients,
// which ends where the block came from.
func (e ring) backward(p *Pass, c core, out attended, h, grads heads, do Tensor) error {
	tmp := p.D.Arena.Scope(device.Communication)
	defer tmp.Release()
	// kv, next: [n·b, groups, 2, d] in the value dtype, the block here and the one that arrives.
	n, stats := e.positions.Len(), statsType(p)
	kv := c.keys(p, tmp, p.DType, n)
	next := tmp.Like(kv)
	pack(p, kv, h)
	g := partGrads{p: p, c: c, out: out, do: do, q: h.q, dq: tmp.Alloc(stats, h.q.Dims()...), begun: make([]bool, len(e.positions))}
	g.partDQ, g.partDKV = tmp.Alloc(stats, c.shape(p, e.positions.Longest())...), c.keys(p, tmp, stats, e.longestKeys())
	// dkv: gradients of the block here by the queries here. sum: those of the block before, complete up to
	// this rank. arriving: those of the block here by the ranks that had it before. All f32, so that nothing is
	// rounded on the way.
	dkv, sum, arriving := c.keys(p, tmp, stats, n), c.keys(p, tmp, stats, n), c.keys(p, tmp, stats, n)
	// A block and its gradients travel the same way, the gradients one step later.
	for step := range e.context.Rows() {
		var send, receive []Tensor
		if step < e.context.Rows()-1 {
			send, receive = append(send, kv), append(receive, next)
		}
		if step > 0 {
			send, receive = append(send, sum), append(receive, arriving)
		}
		coming := e.context.Around(send, receive)
		p.D.Fill(dkv, 0)
		e.parts(p, c, step, func(query, key part) { g.add(query, key, key.rows(kv), key.rows(dkv)) })
		if err := p.exchanged(coming.Wait); err != nil {
			return err
		}
		if step > 0 {
			p.D.Add(dkv, dkv, arriving)
		}
		// dkv leaves in the next step, as sum.
		kv, next = next, kv
		dkv, sum = sum, dkv
	}
	// One more step brings the gradients of this rank's own block home.
	if err := p.exchanged(e.context.Around([]Tensor{sum}, []Tensor{arriving}).Wait); err != nil {
		return err
	}
	p.D.Copy(grads.q, g.dq)
	p.D.Copy(grads.k, arriving.Slice(2, 0, 1))
	p.D.Copy(grads.v, arriving.Slice(2, 1, 1))
	return nil
}

// partGrads adds up the gradients of pairs of spans.
type partGrads struct {
	p               *Pass
	c               core
	out             attended
	do, q           Tensor
	dq              Tensor // f32, of all queries
	partDQ, partDKV Tensor // of one pair
	begun           []bool // spans of queries that have gradients
}

func (g *partGrads) add(query, key part, kv, dkv Tensor) {
	d, dq := g.p.D, query.rows(g.dq)
	seen := heads{q: query.rows(g.q), k: kv.Slice(2, 0, 1), v: kv.Slice(2, 1, 1)}
	to, partDKV := g.partDQ.Slice(0, 0, dq.Shape[0]), g.partDKV.Slice(0, 0, kv.Shape[0])
	if !g.begun[query.i] {
		to = dq
	}
	d.AttentionBackward(device.AttentionBackwardArgs{DQ: to, DK: partDKV.Slice(2, 0, 1), DV: partDKV.Slice(2, 1, 1), DO: query.rows(g.do),
		Forward: g.c.call(g.p, query.at, key.at.From, query.rows(g.out.o), g.out.lse[query.i], seen)})
	if g.begun[query.i] {
		d.Add(dq, dq, to)
	}
	g.begun[query.i] = true
	d.Add(dkv, dkv, partDKV)
}
