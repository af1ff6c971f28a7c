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
	narrow     *mpu.Linear   // from the hidden size to the experts' width, before they are reached; nil: it is theirs
	wide       *mpu.Linear   // and back, of a token's sum
	recomputed Recomputed
	at         mpu.ExpertShare
}

func newMixture(m *spec.Model, layer int, name string, p Parallel, f Recomputed) *mixture {
	x := &mixture{m: m, router: newRouter(m, layer, name, p), experts: newExperts(m, name+".experts", p), dispatch: p.dispatcher(m), recomputed: f, at: p.expertShare(m)}
	x.experts.recomputeActs = f.ExpertActs
	if n := int64(m.Experts.LatentSize); n > 0 {
		h := int64(m.HiddenSize)
		x.narrow = mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".fc1_latent_proj", Out: n, In: h, Init: mpu.Init{Std: m.InitStd}})
		x.wide = mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".fc2_latent_proj", Out: h, In: n, Init: outputInit(m)})
	}
	if m.Experts.SharedFFN > 0 {
		x.shared = newSharedExpert(m, name+".shared_experts", p)
	}
	return x
}

func (x *mixture) params() []*mpu.Param {
	ps := append(x.router.linear.Params(), x.router.scale.params()...)
	if x.narrow != nil {
		ps = append(append(ps, x.narrow.Params()...), x.wide.Params()...)
	}
	ps = append(ps, x.experts.params()...)
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
	sum     Tensor // [rows, experts' width]: each token's sum; none: it is y's part
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
	taken := in
	if x.narrow != nil {
		taken = tmp.Alloc(p.DType, in.Shape[0], x.narrow.Weight.Shape[0])
		x.narrow.Forward(p.D, taken, in)
	}
	if saved.sent, err = x.dispatch.Forward(p.D, s, p.Leaves, taken, saved.routed.sent, saved.routed.weights, during); err != nil {
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
	// Experts: [sent rows, their width] to the same; backward of the projection behind them needs what it took.
	out := x.experts.forward(p, s, tmp, saved, y.Given() || x.wide != nil)
	if err := after(); err != nil {
		return nil, err
	}
	return saved, x.combine(p, s, tmp, saved, y, out, in.Shape[0])
}

// combine adds to y, or without a shared expert sets y to, the sums of every token's rows, which have their weights by now and
// come back, [rows, h]. Without a y it makes what backward needs.
func (x *mixture) combine(p *Pass, s, tmp *device.Scope, saved *mixtureSaved, y, out Tensor, rows int64) error {
	if !y.Given() && x.wide == nil {
		return nil
	}
	combined := y
	if x.shared != nil && y.Given() {
		combined = tmp.Like(y)
	}
	sum := combined
	if x.wide != nil {
		sum = s.Alloc(p.DType, rows, x.wide.Weight.Shape[1])
		saved.sum = sum
	}
	if err := x.dispatch.Combine(p.D, saved.sent, sum, out); err != nil || !y.Given() {
		return err
	}
	if x.wide != nil {
		x.wide.Forward(p.D, combined, sum)
	}
	if x.shared != nil {
		p.D.Add(y, y, combined)
	}
	return nil
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
	dsum, dtaken := dy, dx
	if x.wide != nil {
		dsum, dtaken = s.Like(saved.sum), s.Like(saved.sum)
		x.wide.Backward(p.D, &p.Hooks, dsum, dy, saved.sum)
	}
	dout, err := x.dispatch.CombineBackward(p.D, s, saved.sent, dsum, during)
	if err != nil {
		return err
	}
	// Experts backward: gradients of the rows that they took and of the rows' weights.
	drows, dplaced := x.experts.backward(p, s, saved, dout)
	// Dispatch backward: both return to the ranks of their tokens, dx [rows, h], dweights [tokens, topk].
	dweights := s.Like(saved.routed.weights)
	if err := x.dispatch.Backward(p.D, saved.sent, dtaken, dweights, drows, dplaced); err != nil {
		return err
	}
	if x.narrow != nil {
		x.narrow.Backward(p.D, &p.Hooks, dx, dtaken, in)
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
			e.While += fmt.Sprintf(", where tokens chose the experts of this rank %d times; an even share would be %d times",
				saved.sent.Rows(), saved.routed.experts.Len()*int64(x.at.Parts))
		}
	}
	if lack != nil {
		panic(lack)
	}
}
