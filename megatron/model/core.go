package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// core is the middle of attention: softmax(QKᵀ)V of some heads, between RoPE and the
// output projection. It is one call of a kernel where a rank has all positions; else what
// is left of the exchange with the ranks that have the others.
type core struct {
	a         *attention
	groups    int64 // query groups
	firstHead int64 // global number
	slopes    Tensor
}

// core of all heads that the rank's projection makes.
func (a *attention) core() core { return core{a, a.groups, a.firstHead, a.slopes} }

// share is the core of a part of the heads.
func (c core) share(part, parts int) core {
	c.groups /= int64(parts)
	heads := c.groups * c.a.perGroup
	c.firstHead += int64(part) * heads
	if c.slopes.Given() {
		c.slopes = c.slopes.Slice(0, int64(part)*heads, heads)
	}
	return c
}

// sinks are those of the core's heads, of all that the rank has.
func (c core) sinks(all Tensor) Tensor {
	return all.Slice(0, c.firstHead-c.a.firstHead, c.groups*c.a.perGroup)
}

// scoreRule is what becomes of a model's scores.
func scoreRule(m *spec.Model) (device.ScoreRule, float32) {
	if m.ScoreCap > 0 {
		return device.CappedScores, float32(m.ScoreCap)
	}
	return device.PlainScores, 0
}

// call describes attention of queries at `at` to keys from position keysAt on.
func (c core) call(p *Pass, at mpu.Span, keysAt int64, o, lse Tensor, h heads) device.AttentionForwardArgs {
	m := c.a.m
	call := device.AttentionForwardArgs{O: o, LSE: lse, Q: h.q, K: h.k, V: h.v, Slopes: c.slopes, Batch: int32(p.Batch), QOffset: int32(at.From), KOffset: int32(keysAt),
		Drop:   p.dropout(m.AttentionDropout, fmt.Sprintf("layers.%d.attention_dropout", c.a.layer), at.From),
		Window: int32(m.WindowAt(c.a.layer)), Chunk: int32(m.ChunkAt(c.a.layer)), Scale: float32(m.ScoreScale())}
	call.Rule, call.Cap = scoreRule(m)
	call.Drop.Channel = int32(c.firstHead)
	if p.DocStart.Given() {
		call.DocStart = p.DocStart.Slice(1, at.From, at.N)
	}
	return call
}

// shape is that of queries and outputs of n positions.
func (c core) shape(p *Pass, n int64) []int64 {
	return []int64{n * p.Batch, c.groups, c.a.perGroup, c.a.channels}
}

// firstSeen is the first position that a query at a span sees; those after the first see no
// earlier one.
func (c core) firstSeen(p *Pass, at mpu.Span) int64 {
	first := int64(0)
	if p.FirstSeen != nil {
		first = int64(p.FirstSeen[at.From])
	}
	if window := int64(c.a.m.WindowAt(c.a.layer)); window >= 0 {
		first = max(first, at.From-window)
	}
	if chunk := int64(c.a.m.ChunkAt(c.a.layer)); chunk > 0 {
		first = max(first, at.From/chunk*chunk)
	}
	return first
}

// keys allocates keys and values of n positions: [n·b, groups, 2, d].
func (c core) keys(p *Pass, s *device.Scope, t device.DType, n int64) Tensor {
	return s.Alloc(t, n*p.Batch, c.groups, 2, c.a.channels)
}

// pack copies keys and values into kv [n·b, groups, 2, d].
func pack(p *Pass, kv Tensor, h heads) {
	p.D.Copy(kv.Slice(2, 0, 1), h.k)
	p.D.Copy(kv.Slice(2, 1, 1), h.v)
}

// attended is what a core's backward needs in addition to queries, keys and values.
type attended struct {
	o      Tensor   // [n·b, groups, heads of a group, d], in the value dtype
	lse    []Tensor // of each span of positions: f32 [b, heads, n], logs of the softmax's denominators
	turned Tensor   // of an exchange of heads: what came of queries, keys and values
}

// exchange is a way to attend to the keys of other ranks.
type exchange interface {
	// forward sets o from what the rows here have of h.
	forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error)
	// backward sets the gradients of h.
	backward(p *Pass, c core, at attended, h, grads heads, do Tensor) error
}

// newAttended is o with memory for the statistics of spans of positions.
func (c core) newAttended(p *Pass, s *device.Scope, o Tensor, positions mpu.Positions) attended {
	at := attended{o: o}
	for _, span := range positions {
		at.lse = append(at.lse, s.Alloc(statsType(p), p.Batch, c.groups*c.a.perGroup, span.N))
	}
	return at
}

// alone is the exchange of a rank that has all positions.
type alone struct{ at mpu.Span }

func (e alone) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error) {
	at := c.newAttended(p, s, o, mpu.Positions{e.at})
	p.D.AttentionForward(c.call(p, e.at, 0, at.o, at.lse[0], h))
	return at, nil
}

func (e alone) backward(p *Pass, c core, at attended, h, grads heads, do Tensor) error {
	if p.Leaves.Chunk > 0 && (c.a.perGroup > 1 || c.a.sharers != nil) { // heads share keys, here or with other ranks
		return e.backwardByHead(p, c, at, h, grads, do)
	}
	p.D.AttentionBackward(device.AttentionBackwardArgs{DQ: grads.q, DK: grads.k, DV: grads.v, DO: do, Forward: c.call(p, e.at, 0, at.o, at.lse[0], h)})
	return nil
}

// spans calls f for each span of positions with its number and its rows among those of all.
func (p *Pass) spans(positions mpu.Positions, f func(i int, at mpu.Span, rows func(Tensor) Tensor)) {
	from := int64(0)
	for i, at := range positions {
		first := from
		f(i, at, func(t Tensor) Tensor { return t.Slice(0, first*p.Batch, at.N*p.Batch) })
		from += at.N
	}
}
