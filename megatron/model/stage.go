package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// StageConfig says which part of a model a stage is.
type StageConfig struct {
	Model     *spec.Model
	Layers    []int // global numbers, ascending
	Embedding bool  // the stage starts with the embedding
	Head      bool  // the stage ends with final norm, output layer and loss
	Recompute Recompute
	DType     device.DType // of values
}

// Stage is a contiguous part of a GPT on one rank: one pipeline stage, or the
// whole model.
type Stage struct {
	config    StageConfig
	m         *spec.Model
	device    *device.Device
	embedding *embedding // nil: activations come from another stage
	layers    []*layer
	finalNorm *norm // nil: activations go to another stage
	head      *mpu.VocabParallelHead
	output    *mpu.Param // untied output layer; nil: tied
	chunks    []chunk
}

// NewStage builds the stage's parameters, without memory; see Materialize.
func NewStage(d *device.Device, c StageConfig, tp comm.Group) (*Stage, error) {
	forget, err := c.Recompute.forget()
	if err != nil {
		return nil, err
	}
	s := &Stage{config: c, m: c.Model, device: d, chunks: c.Recompute.chunks(len(c.Layers))}
	if c.Embedding {
		s.embedding = newEmbedding(c.Model, tp)
	}
	for _, n := range c.Layers {
		l := newLayer(c.Model, n, tp)
		l.forget = forget
		s.layers = append(s.layers, l)
	}
	if c.Head {
		s.addHead(tp)
	}
	return s, nil
}

func (s *Stage) addHead(tp comm.Group) {
	m := s.m
	s.finalNorm = newNorm(m, "decoder.final_layernorm", m.HiddenSize)
	table := mpu.NewVocabParallelEmbedding(tp, "output_layer.weight", keptVocab(m), int64(m.PaddedVocabSize), int64(m.HiddenSize), mpu.Init{Std: m.EmbeddingInitStd})
	if m.Tied && s.embedding != nil {
		table = s.embedding.words
	} else {
		s.output = table.Weight
	}
	s.head = mpu.NewVocabParallelHead(tp, table.Weight, table.Start, keptVocab(m))
}

// Params lists the stage's parameters in Megatron's module order.
func (s *Stage) Params() []*mpu.Param {
	var ps []*mpu.Param
	if s.embedding != nil {
		ps = append(ps, s.embedding.params()...)
	}
	for _, l := range s.layers {
		ps = append(ps, l.params()...)
	}
	if s.finalNorm != nil {
		ps = append(ps, s.finalNorm.params()...)
	}
	if s.output != nil {
		ps = append(ps, s.output)
	}
	return ps
}

// Materialize gives the parameters memory, with main gradients where the stage
// is trained, and builds the constant tables. It returns the gradient buffer.
func (s *Stage) Materialize(positions int, train bool) (grads Tensor) {
	grads = mpu.Allocate(s.device, s.Params(), s.config.DType, train)
	var rope *ropeTables
	for _, l := range s.layers {
		if s.m.RopeAt(l.number) {
			if rope == nil {
				rope = newRopeTables(s.device, int64(positions), s.m.RopeFrequencies())
			}
			l.attention.rope = rope
		}
		if s.m.Position == spec.PositionAlibi {
			l.attention.slopes = alibi(s.device, s.m.NumAttentionHeads)
		}
	}
	return grads
}

func alibi(d *device.Device, heads int) Tensor {
	slopes := spec.AlibiSlopes(heads)
	t := d.Arena.Alloc(device.Parameters, device.F32, int64(heads))
	device.WriteSlice(d, t, slopes)
	return t
}

// Saved is what one micro-batch's backward needs.
type Saved struct {
	bounds    *device.Scope // inputs of the chunks and what goes out
	inputs    []Tensor      // by layer; none inside a recomputed chunk
	embedding *embeddingSaved
	layers    []*layerSaved
	head      *headSaved
}

type headSaved struct{ dhidden Tensor }

// Output is what a stage's forward gives.
type Output struct {
	Hidden Tensor // [tokens, h]: for the next stage, or before the head
	Loss   Tensor // f32 [tokens], last stage
	saved  *Saved
}

// Forward runs the stage on x (none on the first stage). Out belongs to the
// caller until Backward or Release.
func (s *Stage) Forward(p *Pass, x Tensor) (*Output, error) {
	saved := &Saved{bounds: p.D.Arena.Scope(device.Activations), inputs: make([]Tensor, len(s.layers)), layers: make([]*layerSaved, len(s.layers))}
	x, err := s.enter(p, saved, x)
	if err != nil {
		return nil, err
	}
	for _, c := range s.chunks {
		if x, err = s.forwardChunk(p, saved, c, x); err != nil {
			return nil, err
		}
	}
	out := &Output{Hidden: x, saved: saved}
	if s.head != nil && p.Labels.Given() {
		if err := s.forwardHead(p, out); err != nil {
			return nil, err
		}
	}
	return out, p.D.Err()
}

func (s *Stage) enter(p *Pass, saved *Saved, x Tensor) (Tensor, error) {
	if s.embedding == nil {
		return x, nil
	}
	x = saved.bounds.Alloc(p.DType, p.Tokens(), int64(s.m.HiddenSize))
	var err error
	if saved.embedding, err = s.embedding.forward(p, p.D.Arena.Scope(device.Activations), x); err != nil {
		return x, err
	}
	p.show(0, x)
	return x, nil
}

// forwardChunk runs layers; where they will be recomputed, or no backward
// follows, only the chunk's output stays.
func (s *Stage) forwardChunk(p *Pass, saved *Saved, c chunk, x Tensor) (Tensor, error) {
	first := x
	for i := c.from; i < c.to; i++ {
		saved.inputs[i] = x
		y := saved.bounds.Like(x)
		scope := p.D.Arena.Scope(device.Activations)
		kept, err := s.layers[i].forward(p, scope, y, x)
		if err != nil {
			return x, fmt.Errorf("layer %d: %w", s.layers[i].number, err)
		}
		p.show(s.layers[i].number+1, y)
		if c.again || !p.Grad {
			scope.Release()
			kept = nil
		}
		if i > c.from && kept == nil {
			saved.bounds.Free(x)
		}
		saved.layers[i] = kept
		x = y
	}
	if !p.Grad && saved.bounds.Has(first) { // else it came from another stage
		saved.bounds.Free(first)
	}
	return x, nil
}

// forwardHead computes the losses and, when a backward follows, already the
// hidden gradient: logits exist only now.
func (s *Stage) forwardHead(p *Pass, out *Output) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	saved := out.saved
	normed := tmp.Like(out.Hidden)
	stats := s.finalNorm.forward(p, tmp, normed, out.Hidden)
	out.Loss = saved.bounds.Alloc(statsType(p), p.Tokens())
	a := mpu.LossArgs{Hidden: normed, Labels: p.Labels, Loss: out.Loss, Weight: p.Weight, Scale: p.LossScale}
	if p.Grad {
		a.DHidden = tmp.Like(normed)
	}
	if err := s.head.Loss(p.D, a); err != nil {
		return err
	}
	if p.Grad {
		saved.head = &headSaved{dhidden: saved.bounds.Like(out.Hidden)}
		s.finalNorm.backward(p, stats, saved.head.dhidden, a.DHidden, out.Hidden, Tensor{})
	}
	return nil
}

// Backward turns the gradient of the stage's output (none on the last stage)
// into weight gradients and, on a stage without embedding, the gradient of its
// input, written to dx. Everything the forward kept is released.
func (s *Stage) Backward(p *Pass, out *Output, dy, dx Tensor) error {
	saved := out.saved
	defer saved.bounds.Release()
	if saved.head != nil {
		dy = saved.head.dhidden
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	d := [2]Tensor{tmp.Like(dy), tmp.Like(dy)}
	for k := len(s.chunks) - 1; k >= 0; k-- {
		c := s.chunks[k]
		if err := s.recall(p, tmp, saved, c); err != nil {
			return err
		}
		for i := c.to - 1; i >= c.from; i-- {
			next := d[i%2]
			if err := s.layers[i].backward(p, saved.layers[i], next, dy, saved.inputs[i]); err != nil {
				return fmt.Errorf("layer %d: %w", s.layers[i].number, err)
			}
			saved.layers[i] = nil
			dy = next
		}
	}
	if s.embedding != nil {
		s.embedding.backward(p, saved.embedding, dy)
	} else {
		p.D.Copy(dx, dy)
	}
	return p.D.Err()
}

// recall runs a forgotten chunk forward again, this time keeping everything.
func (s *Stage) recall(p *Pass, tmp *device.Scope, saved *Saved, c chunk) error {
	if !c.again {
		return nil
	}
	x := saved.inputs[c.from]
	for i := c.from; i < c.to; i++ {
		saved.inputs[i] = x
		y := tmp.Like(x)
		kept, err := s.layers[i].forward(p, p.D.Arena.Scope(device.Activations), y, x)
		if err != nil {
			return fmt.Errorf("layer %d again: %w", s.layers[i].number, err)
		}
		saved.layers[i] = kept
		x = y
	}
	return nil
}

// Release drops an output that no backward follows.
func (out *Output) Release() {
	out.saved.bounds.Release()
	if e := out.saved.embedding; e != nil {
		e.scope.Release()
	}
}

// Logits of the positions in hidden [n, h], an output's rows, to f32 [n, vocabulary].
func (s *Stage) Logits(p *Pass, logits, hidden Tensor) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	normed := tmp.Like(hidden)
	s.finalNorm.forward(p, tmp, normed, hidden)
	s.head.Logits(p.D, logits, normed)
}

// Normed is the final norm of an output's rows, as the head sees them.
func (s *Stage) Normed(p *Pass, y, hidden Tensor) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	s.finalNorm.forward(p, tmp, y, hidden)
}

// NewCache makes an empty cache for sequences of up to `capacity` positions.
func (s *Stage) NewCache(capacity, batch int64) *Cache {
	c := &Cache{}
	for _, l := range s.layers {
		c.Layers = append(c.Layers, s.device.Arena.Alloc(device.Activations, s.config.DType, capacity*batch, l.attention.groups, 2, l.attention.channels))
	}
	return c
}

// Free gives the cache's memory back.
func (c *Cache) Free(d *device.Device) {
	for _, t := range c.Layers {
		d.Arena.Free(t)
	}
}
