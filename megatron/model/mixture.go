package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// mixture is a sublayer that sends each token to the few experts that its router chose:
// y = Σ over the choices of weight·expert(x), + the shared expert's. Its stations are pairs:
// router, dispatch, experts, combine.
type mixture struct {
	m          *spec.Model
	router     *router
	dispatch   *mpu.Dispatcher
	experts    *experts
	shared     *sharedExpert // nil: none
	recomputed Recomputed
	at         mpu.ExpertShare
}

func newMixture(m *spec.Model, layer int, name string, p Parallel, f Recomputed) *mixture {
	x := &mixture{m: m, router: newRouter(m, layer, name, p), experts: newExperts(m, name+".experts", p), dispatch: p.dispatcher(m), recomputed: f, at: p.expertShare(m)}
	x.experts.recomputeActs = f.ExpertActs
	if m.Experts.SharedFFN > 0 {
		x.shared = newSharedExpert(m, name+".shared_experts", p)
	}
	return x
}

func (x *mixture) params() []*mpu.Param {
	ps := append(append(x.router.linear.Params(), x.router.scale.params()...), x.experts.params()...)
	if x.shared != nil {
		ps = append(ps, x.shared.params()...)
	}
	return ps
}

// bias: what experts add has a weight, and is in y.
func (x *mixture) bias() Tensor { return Tensor{} }

type mixtureSaved struct {
	mixture *mixture
	routed  *routed
	sent    *mpu.Dispatched
	experts *expertsSaved
	shared  *sharedSaved
}

// forward sets y = mixture(x) of the rows here; without a y it ends before the combination.
func (x *mixture) forward(p *Pass, s *device.Scope, y, in Tensor) (sublayerSaved, error) {
	return x.forwardSeeing(p, s, y, in, in)
}

// forwardSeeing is forward whose router sees other rows than the experts take.
func (x *mixture) forwardSeeing(p *Pass, s *device.Scope, y, in, seen Tensor) (sublayerSaved, error) {
	saved := &mixtureSaved{mixture: x}
	defer x.lacking(saved)
	defer x.moved(p, saved)
	// Router: the experts of each token, and their weights [tokens, topk].
	var err error
	if saved.routed, err = x.router.forward(p, s, seen); err != nil {
		return nil, err
	}
	// Dispatch: rows go to the ranks of their experts, [sent rows, h], sorted by expert. The shared expert
	// computes in the meantime, or after the experts; it sets y.
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	shared := func() error { return x.forwardShared(p, s, tmp, saved, y, in) }
	during, after := x.sharedExpert(shared)
	if saved.sent, err = x.dispatch.Forward(p.D, s, p.Leaves, in, saved.routed.sent, saved.routed.weights, during); err != nil {
		return nil, err
	}
	// Report the choices, in the first forward only: recompute makes the same ones.
	if p.Routed != nil && !p.Again {
		r := saved.routed
		p.Routed(x.router.layer, Routing{r.logits, r.experts, r.sent, r.weights, saved.sent.Offsets, saved.sent.Exchange()})
	}
	if !p.Again && p.Auxiliary != nil {
		x.router.note(p, saved.routed, x.at, saved.sent)
	}
	// Experts: [sent rows, h] to [sent rows, h].
	out := x.experts.forward(p, s, tmp, saved, y.Given())
	if err := after(); err != nil {
		return nil, err
	}
	if !y.Given() {
		return saved, nil
	}
	// Combine: every token's rows, which have their weights by now, come back and are summed, [rows, h].
	combined := y
	if x.shared != nil {
		combined = tmp.Like(y)
	}
	if err := x.dispatch.Combine(p.D, saved.sent, combined, out); err != nil {
		return nil, err
	}
	if x.shared != nil {
		p.D.Add(y, y, combined)
	}
	return saved, nil
}

// forwardShared sets y = shared(x).
func (x *mixture) forwardShared(p *Pass, s, tmp *device.Scope, saved *mixtureSaved, y, in Tensor) (err error) {
	if x.recomputed.Shared {
		_, err = x.shared.forward(p, tmp, y, in)
		return err
	}
	saved.shared, err = x.shared.forward(p, s, y, in)
	return err
}

// backwardShared sets dx = shared'(x)·dy.
func (saved *mixtureSaved) backwardShared(p *Pass, s *device.Scope, dx, dy, in Tensor) (err error) {
	shared := saved.shared
	if shared == nil {
		if shared, err = saved.mixture.shared.forward(p, s, Tensor{}, in); err != nil {
			return err
		}
	}
	return shared.backward(p, dx, dy, in)
}

// sharedExpert is when the shared expert computes: while tokens travel
// (--moe-shared-expert-overlap), or after the experts.
func (x *mixture) sharedExpert(shared func() error) (during mpu.During, after func() error) {
	switch {
	case x.shared == nil:
		return nil, func() error { return nil }
	case x.m.Experts.SharedOverlap:
		return shared, func() error { return nil }
	}
	return nil, shared
}

// backward sets dx from dy; x is forward's input.
func (saved *mixtureSaved) backward(p *Pass, dx, dy, in Tensor) error {
	return saved.backwardSeeing(p, dx, Tensor{}, dy, in, in)
}

// backwardSeeing is backward of forwardSeeing: dx is the gradient of the experts' input, dseen of the router's;
// without a dseen that is in dx too.
func (saved *mixtureSaved) backwardSeeing(p *Pass, dx, dseen, dy, in, seen Tensor) error {
	x := saved.mixture
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	defer x.lacking(saved)
	defer x.moved(p, saved)
	// Combine backward: dy goes to the ranks of the experts, [sent rows, h]; the shared expert's backward runs
	// in the meantime, or at the end.
	var dshared Tensor
	during, after := x.sharedExpert(func() error {
		dshared = s.Like(dx)
		return saved.backwardShared(p, s, dshared, dy, in)
	})
	dout, err := x.dispatch.CombineBackward(p.D, s, saved.sent, dy, during)
	if err != nil {
		return err
	}
	// Experts backward: gradients of the rows that they took and of the rows' weights.
	drows, dplaced := x.experts.backward(p, s, saved, dout)
	// Dispatch backward: both return to the ranks of their tokens, dx [rows, h], dweights [tokens, topk].
	dweights := s.Like(saved.routed.weights)
	if err := x.dispatch.Backward(p.D, saved.sent, dx, dweights, drows, dplaced); err != nil {
		return err
	}
	// Router backward: the weights' gradient and the auxiliary losses' become one gradient of the router's input.
	more := dseen
	if !more.Given() {
		more = s.Like(dx)
	}
	if x.router.backward(p, saved.routed, more, dweights, seen); !dseen.Given() {
		p.D.Add(dx, dx, more)
	}
	if err := after(); err != nil {
		return err
	}
	if dshared.Given() {
		p.D.Add(dx, dx, dshared)
	}
	return nil
}

// moved counts what went to other ranks.
func (x *mixture) moved(p *Pass, saved *mixtureSaved) {
	if p.Auxiliary != nil && saved.sent != nil {
		p.Auxiliary.Moved[x.router.layer] += saved.sent.Bytes()
	}
}

// lacking, deferred, says of a lack of memory whose tokens it was for.
func (x *mixture) lacking(saved *mixtureSaved) {
	lack := recover()
	if e, ok := lack.(*device.OutOfMemory); ok && e.While == "" {
		e.While = fmt.Sprintf("experts of layer %d", x.router.layer)
		if saved.sent != nil {
			e.While += fmt.Sprintf(", where tokens chose those of this rank %d times; evenly spread it were %d",
				saved.sent.Rows(), saved.routed.experts.Len()*int64(x.at.Parts))
		}
	}
	if lack != nil {
		panic(lack)
	}
}
