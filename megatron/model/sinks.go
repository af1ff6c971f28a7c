package model

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// sunk is an exchange whose softmax has a sink a head (GPT-OSS): what the exchange gives is
// multiplied by e^(lse−L), L the log of the denominator with the sink. So no exchange knows
// of sinks, and each counts once whatever ranks the keys are on.
type sunk struct {
	exchange
	sinks     *mpu.Param    // [heads here]
	positions mpu.Positions // that the exchange gives outputs of
}

// newSinks is the trained score of each head here, under Megatron's name.
func newSinks(name string, heads int, mine share) *mpu.Param {
	n := mine.groups * mine.perGroup
	return mpu.Rows(name+".core_attention.softmax_offset", mpu.Init{Kind: mpu.InitConstant}, []int64{int64(heads)}, [][2]int64{{mine.firstHead, n}}, n)
}

// withSinks is e, with the sinks of a model that has them.
func (a *attention) withSinks(e exchange, positions mpu.Positions) exchange {
	if a.sinks == nil {
		return e
	}
	return sunk{e, a.sinks, positions}
}

func (e sunk) forward(p *Pass, s *device.Scope, c core, o Tensor, h heads) (attended, error) {
	at, err := e.exchange.forward(p, s, c, o, h)
	if err != nil {
		return at, err
	}
	p.spans(e.positions, func(i int, _ mpu.Span, rows func(Tensor) Tensor) {
		p.D.AttentionSink(rows(at.o), at.lse[i], c.sinks(e.sinks.Value))
	})
	return at, nil
}

func (e sunk) backward(p *Pass, c core, at attended, h, grads heads, do Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	if e.sinks.Grid.Given() {
		e.addLeaves(p, c, at, do)
		return e.exchange.backward(p, c, at, h, grads, do)
	}
	to := c.sinks(gradient(p, s, e.sinks))
	p.spans(e.positions, func(i int, _ mpu.Span, rows func(Tensor) Tensor) {
		p.D.AttentionSinkBackward(device.AttentionSinkBackwardArgs{DSinks: to, O: rows(at.o), DO: rows(do), LSE: at.lse[i], Sinks: c.sinks(e.sinks.Value)})
	})
	return e.exchange.backward(p, c, at, h, grads, do)
}

// addLeaves adds the gradient of each leaf of the positions, which are all here.
func (e sunk) addLeaves(p *Pass, c core, at attended, do Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	lse, sinks, sum := at.lse[0], c.sinks(e.sinks.Value), c.sinks(e.sinks.Grad)
	leaf, stats := s.Alloc(device.F32, sinks.Len()), s.Alloc(lse.DType, 1, lse.Shape[1], p.Leaves.Chunk)
	nth := int64(0) // chunk by chunk, sample by sample
	p.Leaves.Each(at.o.Shape[0], func(of func(Tensor) Tensor) {
		p.D.Copy(stats, lse.Slice(0, nth%p.Batch, 1).Slice(2, nth/p.Batch*p.Leaves.Chunk, p.Leaves.Chunk))
		p.D.Fill(leaf, 0)
		p.D.AttentionSinkBackward(device.AttentionSinkBackwardArgs{DSinks: leaf, O: of(at.o), DO: of(do), LSE: stats, Sinks: sinks})
		p.D.GridAdd(device.GridAddArgs{Sum: sum, X: leaf, Grid: e.sinks.Grid, Peak: e.sinks.Peak})
		nth++
	})
}
