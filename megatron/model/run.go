package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Saved is what one micro-batch's backward needs.
type Saved struct {
	bounds    *device.Scope // inputs of the segments and what goes out
	inputs    []kept        // by layer; none inside a recomputed segment
	embedding *embeddingSaved
	layers    []*layerSaved
	head      *headSaved
	lent      map[int]*lent  // keys and values that several layers read, by the layer (global) that made them
	perLayer  *perLayerSaved // embeddings of each layer; nil: none
	soFar     map[int]Tensor // f32 [1, experts], by layer (global): counts of the global balancing loss up to this micro-batch
}

type headSaved struct{ dhidden Tensor }

// Output is what a stage's forward gives.
type Output struct {
	Hidden Tensor // [tokens, h]: for the next stage, or before the head; the rank's rows under sequence parallelism
	Loss   Tensor // f32 [tokens], last stage; the same on every tensor-parallel rank
	saved  *Saved

	Best, Target Tensor   // f32 [tokens], last stage, where Pass.Choices asks: the largest logit and the label's
	Ahead        []Tensor // f32 [tokens], last stage: losses of each depth of multi-token prediction
}

// Forward runs the stage on x, shaped as Output.Hidden (none on the first stage);
// x must live until Backward. Out belongs to the caller until Backward or Release.
func (s *Stage) Forward(p *Pass, x Tensor) (*Output, error) {
	if err := s.checkLength(p); err != nil {
		return nil, err
	}
	if len(s.m.Adapters) > 0 {
		p.dropBranches()
	}
	saved := &Saved{bounds: p.D.Arena.Scope(device.Activations), inputs: make([]kept, len(s.layers)), layers: make([]*layerSaved, len(s.layers)), soFar: map[int]Tensor{}, lent: map[int]*lent{}}
	p.saved = saved
	x, err := s.forwardEmbedding(p, saved, x)
	if err != nil {
		return nil, err
	}
	for _, c := range s.segments {
		if x, err = s.forwardSegment(p, saved, c, x); err != nil {
			return nil, err
		}
	}
	out := &Output{Hidden: x, saved: saved}
	if s.head != nil && p.Labels.Given() {
		if err := p.Using(s.uses.head, func() error { return s.forwardHead(p, out) }); err != nil {
			return nil, fmt.Errorf("output layer: %w", err)
		}
	}
	return out, p.D.Err()
}

// forwardEmbedding is the input of the first layer, [rows, h]: the embedding's output, or x from the stage before.
func (s *Stage) forwardEmbedding(p *Pass, saved *Saved, x Tensor) (Tensor, error) {
	if s.embedding == nil {
		return x, nil
	}
	x = saved.bounds.Alloc(p.DType, s.region.Rows(p.Tokens()), int64(s.m.HiddenSize))
	err := p.Using(s.uses.embedding, func() (err error) {
		saved.embedding, err = s.embedding.forward(p, p.D.Arena.Scope(device.Activations), x)
		return err
	})
	if err != nil {
		return x, fmt.Errorf("embedding: %w", err)
	}
	p.show(0, x)
	return x, nil
}

// forwardSegment runs layers; where they will be recomputed, or no backward
// follows, only the segment's output stays.
func (s *Stage) forwardSegment(p *Pass, saved *Saved, c segment, x Tensor) (Tensor, error) {
	first := x
	for i := c.from; i < c.to; i++ {
		saved.inputs[i] = kept{uncut: x}
		y := saved.bounds.Like(x)
		back, err := s.forwardLayer(p, i, y, x)
		if err != nil {
			return x, err
		}
		p.show(s.layers[i].number+1, y)
		if c.again || !p.Grad {
			back.scope.Release()
			back = nil
		}
		if i > c.from && back == nil {
			saved.bounds.Free(x)
		}
		saved.layers[i] = back
		x = y
	}
	switch {
	case !saved.bounds.Has(first): // it came from another stage
	case !p.Grad:
		saved.bounds.Free(first)
	case c.cut:
		saved.inputs[c.from] = s.cut(p, saved.bounds, first)
	}
	return x, nil
}

func (s *Stage) forwardLayer(p *Pass, i int, y, x Tensor) (back *layerSaved, err error) {
	err = p.Using(s.uses.layers[i], func() error {
		back, err = s.layers[i].forward(p, p.D.Arena.Scope(device.Activations), y, x)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("layer %d: %w", s.layers[i].number, err)
	}
	return back, nil
}

// forwardHead computes the losses and, when a backward follows, already the
// hidden gradient: logits exist only now.
func (s *Stage) forwardHead(p *Pass, out *Output) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	saved := out.saved
	// normed: [rows, h]. Multi-token prediction reads it before logits are scaled.
	normed := tmp.Like(out.Hidden)
	stats := s.finalNorm.forward(p, tmp, normed, out.Hidden)
	state := normed
	if len(p.Ahead) > 0 && s.scalesLogits() {
		normed = tmp.Like(state)
		p.D.Copy(normed, state)
	}
	s.scaleLogits(p, normed)
	// Loss, Best, Target: f32 [tokens]
	out.Loss = saved.bounds.Alloc(statsType(p), p.Tokens())
	a := mpu.LossArgs{Hidden: normed, Labels: p.Labels, Loss: out.Loss, Weight: p.Weight, Scale: p.LossScale, Rows: p.Learned, Batch: p.Batch, Hooks: &p.Hooks}
	if p.Choices {
		out.Best, out.Target = saved.bounds.Alloc(statsType(p), p.Tokens()), saved.bounds.Alloc(statsType(p), p.Tokens())
		a.Best, a.Target = out.Best, out.Target
	}
	// A token's weight may depend on the losses (preference).
	if p.Weigh != nil {
		a.Weigh = func() error { return p.Weigh(out.Loss) }
	}
	// With the losses the hidden state's gradient, [rows, h]: the logits of a chunk of rows exist only inside this call.
	if p.Grad {
		a.DHidden = tmp.Like(normed)
		if err := p.Adds(s.uses.head); err != nil {
			return err
		}
	}
	if err := s.head.Loss(p.D, a); err != nil {
		return err
	}
	if p.Grad {
		// Back through scale and final norm; backward starts from saved.head.dhidden.
		saved.head = &headSaved{dhidden: saved.bounds.Like(out.Hidden)}
		s.scaleLogits(p, a.DHidden)
		if err := s.predictAhead(p, out, state, a.DHidden); err != nil {
			return err
		}
		s.finalNorm.backward(p, stats, saved.head.dhidden, a.DHidden, out.Hidden, Tensor{})
	}
	return nil
}

// Backward turns the gradient of the stage's output (none on the last stage)
// into weight gradients and, on a stage without embedding, the gradient of its
// input, written to dx; both are shaped as Output.Hidden. Everything the forward
// kept is released.
func (s *Stage) Backward(p *Pass, out *Output, dy, dx Tensor) error {
	saved := out.saved
	p.saved = saved
	defer saved.bounds.Release()
	// The last stage's forward has made the gradients of the head's own parameters already.
	if saved.head != nil {
		dy = saved.head.dhidden
		for _, made := range append(s.uses.ahead, s.uses.headOwn) { // forward made their gradients
			if err := p.Final(made); err != nil {
				return err
			}
		}
	}
	// Gradients of per-layer embeddings are collected from all layers.
	if all := saved.perLayer; all != nil {
		all.dinputs = saved.bounds.Like(all.inputs)
	}
	// d: two gradients of the residual stream, [rows, h], used in turn: a layer reads one and sets the other.
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	var d [2]Tensor
	if s.embedding != nil || len(s.layers) > 1 {
		d = [2]Tensor{tmp.Like(dy), tmp.Like(dy)}
	}
	// Layers, last to first, each segment recomputed before its layers need it.
	for k := len(s.segments) - 1; k >= 0; k-- {
		c := s.segments[k]
		if err := s.recall(p, tmp, saved, c); err != nil {
			return err
		}
		for i := c.to - 1; i >= c.from; i-- {
			next := d[i%2]
			if i == 0 && s.embedding == nil {
				next = dx
			}
			if err := s.backwardLayer(p, saved, i, next, dy); err != nil {
				return err
			}
			dy = next
		}
	}
	if s.embedding != nil {
		// The first stage ends in the embedding; another one's dx goes to the stage before.
		if err := s.backwardEmbedding(p, saved, dy); err != nil {
			return err
		}
	} else if len(s.layers) == 0 {
		p.D.Copy(dx, dy)
	}
	return p.D.Err()
}

func (s *Stage) backwardLayer(p *Pass, saved *Saved, i int, dx, dy Tensor) error {
	err := p.Using(s.uses.layers[i], func() error {
		if err := p.Adds(s.uses.layers[i]); err != nil {
			return err
		}
		return s.layers[i].backward(p, saved.layers[i], dx, dy, saved.inputs[i].uncut)
	})
	saved.layers[i] = nil
	if err == nil {
		err = p.Final(s.uses.layers[i])
	}
	if err != nil {
		return fmt.Errorf("layer %d backward: %w", s.layers[i].number, err)
	}
	return nil
}

// backwardEmbedding is the embedding's backward. Of the parameters' values it reads only those of the norm and the
// adapter, so the table need not be here.
func (s *Stage) backwardEmbedding(p *Pass, saved *Saved, dy Tensor) error {
	back := func() error {
		if err := p.Adds(s.uses.embedding); err != nil {
			return err
		}
		return s.embedding.backward(p, saved.embedding, dy)
	}
	err := error(nil)
	if read := s.embedding.readBack(); len(read) > 0 {
		err = p.Using(read, back)
	} else {
		err = back()
	}
	if err == nil {
		err = p.Final(s.uses.embedding)
	}
	if err != nil {
		return fmt.Errorf("embedding backward: %w", err)
	}
	return nil
}

// recall runs a forgotten segment forward again, this time keeping everything; its
// output, which nobody reads now, is not made: a product and a sum over ranks less.
func (s *Stage) recall(p *Pass, tmp *device.Scope, saved *Saved, c segment) error {
	if !c.again {
		return nil
	}
	p.Again = true
	defer func() { p.Again = false }()
	x, err := s.join(tmp, saved.inputs[c.from])
	for i := c.from; i < c.to && err == nil; i++ {
		saved.inputs[i] = kept{uncut: x}
		var y Tensor
		if i < c.to-1 {
			y = tmp.Like(x)
		}
		saved.layers[i], err = s.forwardLayer(p, i, y, x)
		x = y
	}
	if err != nil {
		return fmt.Errorf("recomputing: %w", err)
	}
	return nil
}

// Sent reports that Hidden has left for the next stage and is not read here again:
// its memory is given back. Not for a stage with a head.
func (out *Output) Sent() {
	if s := out.saved; s.head == nil && s.bounds.Has(out.Hidden) {
		s.bounds.Free(out.Hidden)
	}
}

// Release drops an output that no backward follows.
func (out *Output) Release() {
	out.saved.bounds.Release()
	if e := out.saved.embedding; e != nil {
		e.scope.Release()
	}
}
