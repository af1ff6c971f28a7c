package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// mtpLayer is a layer of multi-token prediction (spec.MTP) with what is around it:
// y = norm(layer(proj([enorm(embedding); hnorm(state)]))) on the rank's rows [rows, h].
type mtpLayer struct {
	name         string
	region       mpu.Region
	enorm, hnorm *norm
	proj         *mpu.ColumnParallelLinear // [h, 2h], its output joined on every rank
	layer        *layer
	norm         *norm
	uses         []*mpu.Param
}

// newMTPLayer makes the i-th such layer. Its activations live only while the head's do, so
// nothing of it is recomputed. It is not one of the last layers whose products keep their operands.
func newMTPLayer(m *spec.Model, i int, p Parallel) *mtpLayer {
	p.Tiles, p.KeepsOperands = 0, func(int) bool { return false }
	name := spec.MTPName(i)
	made := func(part string) *norm { return newNorm(m, name+part, m.HiddenSize).outside(p) }
	l := &mtpLayer{name: name, region: p.region(), enorm: made(".enorm"), hnorm: made(".hnorm"), norm: made(".final_layernorm"),
		proj: mpu.NewColumnParallelLinear(p.region(), mpu.LinearConfig{Name: name + ".eh_proj", FP8: p.FP8, Out: int64(m.HiddenSize), In: 2 * int64(m.HiddenSize),
			GatherOutput: true, Init: mpu.Init{Std: m.InitStd}}),
		layer: newLayer(m, m.NumLayers+i, p, Recomputed{})}
	l.uses = append(append(append(l.enorm.params(), l.hnorm.params()...), l.proj.Params()...), l.layer.params()...)
	l.uses = append(l.uses, l.norm.params()...)
	for _, w := range l.uses {
		w.OwnClip = m.MTP.DetachHeads
	}
	return l
}

// mtpSaved is what the layer's backward needs; tensors are [rows, h].
type mtpSaved struct {
	embedding       *embeddingSaved
	embedded, state Tensor // before their norms
	eStats, hStats  normSaved
	both            Tensor // [rows, 2h]: into the projection
	in, out         Tensor // of the layer
	layer           *layerSaved
	stats           normSaved
}

// forward sets y from the state of the depth before and the embeddings of p's tokens.
func (l *mtpLayer) forward(p *Pass, s *device.Scope, words *embedding, y, state Tensor) (saved *mtpSaved, err error) {
	rows, h := state.Shape[0], state.Last()
	saved = &mtpSaved{state: state, embedded: s.Like(state), both: s.Alloc(p.DType, rows, 2*h), in: s.Like(state), out: s.Like(state)}
	if saved.embedding, err = words.forward(p, p.D.Arena.Scope(device.Activations), saved.embedded); err != nil {
		return nil, err
	}
	saved.eStats = l.enorm.forward(p, s, saved.both.Slice(1, 0, h), saved.embedded)
	saved.hStats = l.hnorm.forward(p, s, saved.both.Slice(1, h, h), state)
	if err := l.project(p, saved.in, saved.both); err != nil {
		return nil, err
	}
	if saved.layer, err = l.layer.forward(p, p.D.Arena.Scope(device.Activations), saved.out, saved.in); err != nil {
		return nil, err
	}
	saved.stats = l.norm.forward(p, s, y, saved.out)
	return saved, nil
}

// project sets y, the rows here, from both: every rank makes its columns of all rows.
func (l *mtpLayer) project(p *Pass, y, both Tensor) error {
	if !l.region.Cut() {
		return l.proj.Forward(p.D, &p.Hooks, y, both, device.NoEpilogue, Tensor{})
	}
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	all := s.Alloc(p.DType, p.Tokens(), y.Last())
	if err := l.proj.Forward(p.D, &p.Hooks, all, both, device.NoEpilogue, Tensor{}); err != nil {
		return err
	}
	p.D.Copy(y, l.region.Own(all))
	return nil
}

// backward adds to the gradients of the layer's parameters and of the embedding, and sets
// dstate; with detached heads neither embedding nor the decoder's state gets any. dstate not
// given: nobody asks.
func (l *mtpLayer) backward(p *Pass, saved *mtpSaved, words *embedding, detached bool, dstate, dy Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	dout, din := s.Like(dy), s.Like(dy)
	l.norm.backward(p, saved.stats, dout, dy, saved.out, Tensor{})
	if err := l.layer.backward(p, saved.layer, din, dout, saved.in); err != nil {
		return err
	}
	// all: [tokens, h]; the projection is cut by output columns, and each rank computes those of all rows.
	all, err := mpu.Enter(l.region, s, din)
	if err != nil {
		return err
	}
	// dboth: [rows, 2h], the embedding's half first, then the state's.
	dboth := s.Like(saved.both)
	if err := l.proj.Backward(p.D, &p.Hooks, dboth, all, saved.both); err != nil {
		return err
	}
	h := dy.Last()
	if !dstate.Given() {
		dstate = s.Like(dy)
	}
	l.hnorm.backward(p, saved.hStats, dstate, dboth.Slice(1, h, h), saved.state, Tensor{})
	// The norm's weights learn even where the embedding does not.
	dembedded := s.Like(dy)
	l.enorm.backward(p, saved.eStats, dembedded, dboth.Slice(1, 0, h), saved.embedded, Tensor{})
	if detached {
		saved.embedding.scope.Release()
		return nil
	}
	return words.backward(p, saved.embedding, dembedded)
}

// Ahead holds the tokens, labels and weights of a micro-batch for one depth of multi-token
// prediction.
type Ahead struct {
	IDs    Tensor // i32 [tokens]: the token d positions later
	Labels Tensor // i32 [tokens]: the one after it
	Weight Tensor // f32 [tokens]: d(total loss)/d(token loss)
	Mean   Tensor // f32 [tokens]: what is reported of the depth is Σ Mean·loss
}

// depth is one depth of a micro-batch on its way through the head.
type depth struct {
	pass  *Pass
	layer *mtpLayer
	saved *mtpSaved
	y, dy Tensor // state, and its gradient as far as the depth's own loss makes it
}

// passOf is the pass of a depth, counted from 1: the same positions, with its own tokens and
// its own dropout.
func (p *Pass) passOf(d int) *Pass {
	q := *p
	a := p.Ahead[d-1]
	q.IDs, q.Labels, q.Weight = a.IDs, a.Labels, a.Weight
	q.Seed = device.StreamKey(p.Seed, fmt.Sprintf("mtp.%d", d))
	return &q
}

// predictAhead computes the losses of all depths from the decoder's state after its final
// norm, and their gradients: those of parameters, and that of the state, which is added to
// dstate. It comes after the head's own loss, while what this needs is there.
func (s *Stage) predictAhead(p *Pass, out *Output, state, dstate Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	var depths []*depth
	for d := 1; d <= len(p.Ahead); d++ {
		at := &depth{pass: p.passOf(d), layer: s.ahead[min(d, len(s.ahead))-1], y: tmp.Like(state), dy: tmp.Like(state)}
		err := p.Using(at.layer.uses, func() (err error) {
			at.saved, err = at.layer.forward(at.pass, tmp, s.words, at.y, state)
			return err
		})
		if err == nil {
			err = s.lossAhead(at, out, d)
		}
		if err != nil {
			return fmt.Errorf("depth %d of multi-token prediction: %w", d, err)
		}
		depths, state = append(depths, at), at.y
	}
	for d := len(depths); d >= 1; d-- {
		if err := s.learnAhead(p, depths[:d], tmp, dstate); err != nil {
			return fmt.Errorf("depth %d of multi-token prediction, backward: %w", d, err)
		}
	}
	return nil
}

// lossAhead computes a depth's losses and the gradient that they give its state.
func (s *Stage) lossAhead(at *depth, out *Output, d int) error {
	p := at.pass
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	if p.SeeAhead != nil {
		p.SeeAhead(d, at.y)
	}
	loss := out.saved.bounds.Alloc(statsType(p), p.Tokens())
	out.Ahead = append(out.Ahead, loss)
	hidden := at.y
	if s.scalesLogits() {
		hidden = tmp.Like(at.y)
		p.D.Copy(hidden, at.y)
		s.scaleLogits(p, hidden)
	}
	err := s.head.Loss(p.D, mpu.LossArgs{Hidden: hidden, Labels: p.Labels, Loss: loss, DHidden: at.dy, Weight: p.Weight, Scale: p.LossScale, Batch: p.Batch, Hooks: &p.Hooks, TableStays: s.m.MTP.DetachHeads})
	s.scaleLogits(p, at.dy)
	return err
}

// learnAhead is backward of the last of depths. What its state's gradient is by its own loss is
// there; what flows on goes to the depth before, or to the decoder.
func (s *Stage) learnAhead(p *Pass, depths []*depth, tmp *device.Scope, dstate Tensor) error {
	at := depths[len(depths)-1]
	detached := s.m.MTP.DetachHeads
	if len(depths) > 1 {
		dstate = depths[len(depths)-2].dy
	} else if detached {
		dstate = Tensor{}
	}
	through := Tensor{}
	if dstate.Given() {
		through = tmp.Like(dstate)
	}
	err := p.Using(at.layer.uses, func() error {
		if err := p.Adds(at.layer.uses); err != nil {
			return err
		}
		return at.layer.backward(at.pass, at.saved, s.words, detached, through, at.dy)
	})
	if dstate.Given() {
		p.D.Add(dstate, dstate, through)
	}
	return err
}

// AheadLogits sets logits f32 [tokens, vocabulary], on every tensor-parallel rank, to those of
// the state [rows, h] of a depth of multi-token prediction, which Pass.SeeAhead is given.
func (s *Stage) AheadLogits(p *Pass, logits, state Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	hidden := tmp.Like(state)
	p.D.Copy(hidden, state)
	s.scaleLogits(p, hidden)
	return s.head.Logits(p.D, &p.Hooks, logits, hidden)
}
