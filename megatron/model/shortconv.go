package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// shortConv is a short convolution: spec.ShortConv says what it is. Of tensor-parallel ranks each has
// some channels from the input projection to the output projection. Ranks that share sequences
// exchange channels for positions around the convolution.
type shortConv struct {
	layer    int // global, 0-based
	channels int64
	context  mpu.Context
	in       *mpu.ColumnParallelLinear // rows of B, of C, of u
	conv     *mpu.Param                // [channels here, taps]
	proj     *mpu.RowParallelLinear
}

func newShortConv(m *spec.Model, layer int, name string, p Parallel) *shortConv {
	r, h, taps := p.region(), int64(m.HiddenSize), int64(m.Conv.Taps)
	n := h / int64(r.Size())
	first := int64(r.Rank()) * n
	c := &shortConv{layer: layer, channels: n, context: p.byHeads()}
	rows := [][2]int64{{first, n}, {h + first, n}, {2*h + first, n}}
	c.in = mpu.NewColumnParallelLinear(r, mpu.LinearConfig{Name: name + ".in_proj", Out: 3 * h, In: h, Rows: rows, Init: mpu.Init{Std: m.InitStd}})
	c.conv = mpu.Rows(name+".conv1d.weight", mpu.Init{Kind: mpu.InitUniform, Value: 1 / math.Sqrt(float64(taps))}, []int64{h, taps}, rows[:1], n)
	c.proj = mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".out_proj", Out: h, In: h, Init: outputInit(m)})
	return c
}

func (c *shortConv) params() []*mpu.Param {
	return append(append([]*mpu.Param{c.conv}, c.in.Params()...), c.proj.Params()...)
}

func (c *shortConv) bias() Tensor { return c.proj.BiasValue() }

func (c *shortConv) prepare(*device.Device, *positionTables) {}

// newBlocks: a block has the inputs of the convolution at its positions, in f32 whatever the values are.
func (c *shortConv) newBlocks(d *device.Device, _ device.DType, blocks int64) Tensor {
	return d.Arena.Alloc(device.Activations, device.F32, blocks, device.PagedBlock, c.channels)
}

func (c *shortConv) blockBytes(device.DType) int64 {
	return device.PagedBlock * c.channels * device.F32.Size()
}

// shortConvSaved is what backward needs in addition to the input x; all positions of the pass are here, of u
// and the convolution those that the exchange brought.
type shortConvSaved struct {
	layer    *shortConv
	in       Tensor // [tokens, 3·channels]
	conved   Tensor // [tokens, channels]: the convolution's output
	product  Tensor // [rows, channels of the convolution here]: B ⊙ u
	gated    Tensor // [tokens, channels]
	exchange headsShared
}

// parts are views of B, C and u in what the input projection gives, or of their gradients.
func (c *shortConv) parts(in Tensor) (b, gate, u Tensor) {
	return in.Slice(1, 0, c.channels), in.Slice(1, c.channels, c.channels), in.Slice(1, 2*c.channels, c.channels)
}

// forward sets y = layer(x); without a y it ends before the projection.
func (c *shortConv) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	saved := &shortConvSaved{layer: c, exchange: exchangeHeads(p, c.context), in: s.Alloc(p.DType, p.Tokens(), c.in.Columns()), product: s.Alloc(p.DType, p.Tokens(), c.channels)}
	if err := c.in.Forward(p.D, &p.Hooks, saved.in, x, device.NoEpilogue, Tensor{}); err != nil {
		return nil, err
	}
	b, gate, u := c.parts(saved.in)
	p.D.GateForward(device.GateForwardArgs{Y: saved.product, X: b, G: u, Plain: 1})
	saved.conved, saved.gated = s.Alloc(p.DType, p.Tokens(), c.channels), s.Alloc(p.DType, p.Tokens(), c.channels)
	if err := c.convolve(p, s, saved); err != nil {
		return nil, err
	}
	p.D.GateForward(device.GateForwardArgs{Y: saved.gated, X: saved.conved, G: gate, Plain: 1})
	if !y.Given() {
		return saved, nil
	}
	return saved, c.proj.Forward(p.D, &p.Hooks, y, saved.gated)
}

// convolve sets saved.conved.
func (c *shortConv) convolve(p *Pass, s *device.Scope, saved *shortConvSaved) error {
	e := saved.exchange
	switch {
	case p.Paged != nil:
		p.D.PagedCausalConv(device.PagedCausalConvArgs{Y: saved.conved, X: saved.product, W: c.conv.Value, Inputs: p.Paged.Layers[c.layer-p.Paged.First], Tables: p.Paged.Tables, Rows: p.Paged.Rows, Plain: 1})
		return nil
	case e.context.Heads == 1:
		p.D.CausalConvForward(device.CausalConvForwardArgs{Y: saved.conved, X: saved.product, W: c.conv.Value, DocStart: p.DocStart, Batch: int32(p.Batch), Plain: 1})
		return nil
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	mine := saved.product
	saved.product = s.Alloc(p.DType, c.shared(e, mine.Shape[0])...)
	if err := e.bring(p, byChannel(saved.product), c.byRank(e, mine)); err != nil {
		return err
	}
	s.Free(mine) // all of it is there
	out := tmp.Like(saved.product)
	p.D.CausalConvForward(device.CausalConvForwardArgs{Y: out, X: saved.product, W: c.taps(e, c.conv.Value), DocStart: p.DocStart, Batch: int32(p.Batch), Plain: 1})
	return e.back(p, []Tensor{c.byRank(e, saved.conved)}, byChannel(out))
}

// shared is the shape of the exchange's result for `rows` rows here.
func (c *shortConv) shared(e headsShared, rows int64) []int64 {
	n := int64(e.context.Heads)
	return []int64{rows * n, c.channels / n}
}

// byRank views [rows, channels] by the rank that has these channels after the exchange.
func (c *shortConv) byRank(e headsShared, t Tensor) Tensor {
	n := int64(e.context.Heads)
	return device.Strided(t.Data, t.DType, []int64{t.Shape[0], n, c.channels / n, 1}, []int64{t.Stride[0], c.channels / n, 1, 1})
}

// byChannel views t [rows, channels] as the exchange of heads does, a channel as a head: [rows, 1, channels, 1].
func byChannel(t Tensor) Tensor { return t.Reshape(t.Shape[0], 1, t.Shape[1], 1) }

// taps are those of the channels that are here after the exchange.
func (c *shortConv) taps(e headsShared, t Tensor) Tensor {
	n := c.channels / int64(e.context.Heads)
	return t.Slice(0, int64(e.context.Head())*n, n)
}

// backward sets dx from dy; x is forward's input.
func (saved *shortConvSaved) backward(p *Pass, dx, dy, x Tensor) error {
	c, d := saved.layer, p.D
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	dgated, din := s.Like(saved.gated), s.Like(saved.in)
	if err := c.proj.Backward(d, &p.Hooks, dgated, dy, saved.gated); err != nil {
		return err
	}
	b, gate, u := c.parts(saved.in)
	db, dgate, du := c.parts(din)
	d.GateBackward(device.GateBackwardArgs{DX: dgated, DG: dgate, DY: dgated, X: saved.conved, G: gate, Plain: 1})
	dproduct, err := saved.convolveBack(p, s, dgated)
	if err != nil {
		return err
	}
	d.GateBackward(device.GateBackwardArgs{DX: db, DG: du, DY: dproduct, X: b, G: u, Plain: 1})
	return c.in.Backward(d, &p.Hooks, dx, din, x)
}

// convolveBack is the gradient of B ⊙ u from that of the convolution's output.
func (saved *shortConvSaved) convolveBack(p *Pass, s *device.Scope, dy Tensor) (Tensor, error) {
	c, e := saved.layer, saved.exchange
	dx := s.Like(dy)
	if e.context.Heads == 1 {
		p.convolveBack(c.conv, nil, func(t Tensor) Tensor { return t }, device.CausalConvBackwardArgs{DX: dx, DY: dy, X: saved.product, Plain: 1})
		return dx, nil
	}
	dall, dproduct := s.Like(saved.product), s.Like(saved.product)
	if err := e.bring(p, byChannel(dall), c.byRank(e, dy)); err != nil {
		return dx, err
	}
	p.convolveBack(c.conv, nil, func(t Tensor) Tensor { return c.taps(e, t) }, device.CausalConvBackwardArgs{DX: dproduct, DY: dall, X: saved.product, Plain: 1})
	return dx, e.back(p, []Tensor{c.byRank(e, dx)}, byChannel(dproduct))
}
