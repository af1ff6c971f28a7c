package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Each layer of Gemma 4 E2B and E4B adds an embedding of the token that is its own, behind a gate:
//
//	input = (√width·table[id] + norm(projection·embedding/√h)) / √2     [rows, layers·width], for all layers
//	y     = x + norm(out·(act(gate·x) · input of the layer))
//
// All but the table, which is cut like the word embedding, is complete on every tensor-parallel rank, and works on
// the rows that lie outside the cut layers.

// perLayer makes the inputs of all layers.
type perLayer struct {
	width, hidden float64
	words         *mpu.VocabParallelEmbedding // [vocab, layers·width]
	proj          *mpu.Linear                 // [layers·width, h]
	norm          *norm                       // [width]
}

func newPerLayer(m *spec.Model, p Parallel) *perLayer {
	if m.PerLayerInput == 0 {
		return nil
	}
	all := int64(m.NumLayers * m.PerLayerInput)
	return &perLayer{width: float64(m.PerLayerInput), hidden: float64(m.HiddenSize),
		words: mpu.NewVocabParallelEmbedding(p.region(), "embedding.per_layer_embeddings.weight", keptVocab(m), int64(m.PaddedVocabSize), all, mpu.Init{Std: m.EmbeddingInitStd}),
		proj:  mpu.NewLinear(p.region(), mpu.LinearConfig{Name: "embedding.per_layer_projection", Out: all, In: int64(m.HiddenSize), Init: mpu.Init{Std: m.InitStd}}),
		norm:  newNorm(m, "embedding.per_layer_layernorm", m.PerLayerInput).outside(p)}
}

func (l *perLayer) params() []*mpu.Param {
	if l == nil {
		return nil
	}
	return append(append(l.words.Params(), l.proj.Params()...), l.norm.params()...)
}

// perLayerSaved are the inputs of a micro-batch's layers, and what their backward needs.
type perLayerSaved struct {
	inputs   Tensor // [rows, layers·width]
	embedded Tensor // [rows, h]
	raw      Tensor // [rows, layers, 1, width]: before the norm
	stats    normSaved
	dinputs  Tensor // as inputs: each layer sets its columns
}

// columns are a layer's of a tensor as inputs.
func (saved *perLayerSaved) columns(of Tensor, layer int, width int64) Tensor {
	return of.Slice(1, int64(layer)*width, width)
}

// forward makes the inputs of embedded tokens [rows, h].
func (l *perLayer) forward(p *Pass, s *device.Scope, rows Tensor) (*perLayerSaved, error) {
	n, all := rows.Shape[0], l.proj.Weight.Shape[0]
	saved := &perLayerSaved{inputs: s.Alloc(p.DType, n, all), embedded: s.Like(rows), raw: s.Alloc(p.DType, n, all)}
	p.D.Copy(saved.embedded, rows)
	if err := l.words.Forward(p.D, &p.Hooks, saved.inputs, p.IDs); err != nil {
		return nil, err
	}
	l.times(p, saved.inputs, rounded(p, math.Sqrt(l.width)))
	l.proj.Forward(p.D, saved.raw, saved.embedded)
	l.times(p, saved.raw, 1/math.Sqrt(l.hidden))
	width := int64(l.width)
	saved.raw = saved.raw.Reshape(n, all/width, 1, width)
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	normed := tmp.Like(saved.raw)
	saved.stats = l.norm.forward(p, s, normed, saved.raw)
	p.D.Add(saved.inputs, saved.inputs, normed.Reshape(n, all))
	l.times(p, saved.inputs, math.Sqrt2/2)
	return saved, nil
}

func (l *perLayer) times(p *Pass, x Tensor, by float64) {
	p.D.Scale(device.ScaleArgs{Out: x, X: x, By: float32(by)})
}

// rounded is x in the dtype of values, as Gemma has factors of embeddings.
func rounded(p *Pass, x float64) float64 {
	return device.ToFloat64(p.DType, device.FromFloat64(p.DType, []float64{x}))[0]
}

// backward adds to the gradient of the embedded tokens, drows [rows, h].
func (l *perLayer) backward(p *Pass, saved *perLayerSaved, drows Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	l.times(p, saved.dinputs, math.Sqrt2/2)
	draw := s.Like(saved.raw)
	l.norm.backward(p, saved.stats, draw, saved.dinputs.Reshape(saved.raw.Dims()...), saved.raw, Tensor{})
	l.times(p, draw, 1/math.Sqrt(l.hidden))
	more := s.Like(drows)
	l.proj.Backward(p.D, &p.Hooks, more, draw.Reshape(saved.inputs.Dims()...), saved.embedded)
	p.D.Add(drows, drows, more)
	l.times(p, saved.dinputs, rounded(p, math.Sqrt(l.width)))
	dembedding, err := l.words.FullGradient(s, saved.dinputs)
	if err != nil {
		return err
	}
	l.words.Backward(p.D, dembedding, p.IDs)
	return nil
}

// ownInput is what a layer makes of its input.
type ownInput struct {
	layer     int
	width     int64
	gate, out *mpu.Linear
	norm      *norm
	kind      device.Activation
}

func newOwnInput(m *spec.Model, layer int, name string, p Parallel) *ownInput {
	if m.PerLayerInput == 0 {
		return nil
	}
	h, w := int64(m.HiddenSize), int64(m.PerLayerInput)
	return &ownInput{layer: layer, width: w, kind: activationOf(m), norm: newNorm(m, name+".post_per_layer_layernorm", m.HiddenSize).outside(p),
		gate: mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".per_layer_gate", Out: w, In: h, Init: mpu.Init{Std: m.InitStd}}),
		out:  mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".per_layer_projection", Out: h, In: w, Init: outputInit(m)})}
}

func (o *ownInput) params() []*mpu.Param {
	if o == nil {
		return nil
	}
	return append(append(o.gate.Params(), o.out.Params()...), o.norm.params()...)
}

type ownSaved struct {
	x     Tensor // [rows, h]: what it takes
	pre   Tensor // [rows, 2·width]: gates, then the layer's input
	act   Tensor // [rows, width]
	out   Tensor // [rows, h]: before the norm
	stats normSaved
}

// forward sets y = x + norm(..); without a y it makes only what is kept. x stays.
func (o *ownInput) forward(p *Pass, s *device.Scope, y, x Tensor) *ownSaved {
	rows := x.Shape[0]
	saved := &ownSaved{x: x, pre: s.Alloc(p.DType, rows, 2*o.width), act: s.Alloc(p.DType, rows, o.width), out: s.Like(x)}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	gates := tmp.Alloc(p.DType, rows, o.width)
	o.gate.Forward(p.D, gates, x)
	p.D.Copy(saved.pre.Slice(1, 0, o.width), gates)
	p.D.Copy(saved.pre.Slice(1, o.width, o.width), p.saved.perLayer.columns(p.saved.perLayer.inputs, o.layer, o.width))
	p.D.ActivationForward(device.ActivationForwardArgs{Y: saved.act, X: saved.pre, Kind: o.kind})
	o.out.Forward(p.D, saved.out, saved.act)
	normed := tmp.Like(x)
	saved.stats = o.norm.forward(p, s, normed, saved.out)
	if y.Given() {
		p.D.Add(y, x, normed)
	}
	return saved
}

// backward sets dx from dy, and the gradient of the layer's input.
func (o *ownInput) backward(p *Pass, saved *ownSaved, dx, dy Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	dout, dact, dgates := s.Like(dy), s.Like(saved.act), s.Like(saved.act)
	o.norm.backward(p, saved.stats, dout, dy, saved.out, Tensor{})
	o.out.Backward(p.D, &p.Hooks, dact, dout, saved.act)
	p.D.ActivationBackward(device.ActivationBackwardArgs{DX: saved.pre, DY: dact, X: saved.pre, Kind: o.kind})
	p.D.Copy(dgates, saved.pre.Slice(1, 0, o.width))
	p.D.Copy(p.saved.perLayer.columns(p.saved.perLayer.dinputs, o.layer, o.width), saved.pre.Slice(1, o.width, o.width))
	more := s.Like(dy)
	o.gate.Backward(p.D, &p.Hooks, more, dgates, saved.x)
	p.D.Add(dx, more, dy)
}
