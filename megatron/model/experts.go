package model

import (
	"fmt"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// experts are the MLPs of a mixture that are here: fc2(w·act(fc1 x)) of rows sorted by
// expert, w the row's weight.
type experts struct {
	fc1, fc2 *mpu.ExpertLinear
	kind     device.Activation
	gate     gate
	at       weighing
	cut      mpu.ExpertShare

	recomputeActs bool // activations are not kept, but made again (--recompute-modules moe_act)
}

// weighing is where the weight of a choice is multiplied.
type weighing int

const (
	weighActivation weighing = iota
	weighOutput              // where fc2 has a bias, which is multiplied too
	weighInput               // --moe-apply-probs-on-input
)

func newExperts(m *spec.Model, name string, p Parallel) *experts {
	at := p.expertShare(m)
	f, h := int64(m.Experts.FFNHiddenSize), int64(m.ExpertWidth())
	n := f / int64(at.Parts)
	rows := [][2]int64{{n * int64(at.Part), n}}
	out := f
	if m.Gated() {
		rows, out = append(rows, [2]int64{f + n*int64(at.Part), n}), 2*f
	}
	each := func(param string) func(int64) string {
		return func(i int64) string {
			return fmt.Sprintf("%s.local_experts.%d%s", name, i, strings.TrimPrefix(param, name))
		}
	}
	x := &experts{kind: activationOf(m), gate: gateOf(m), cut: at,
		fc1: mpu.NewExpertLinear(at, mpu.LinearConfig{Name: name + ".linear_fc1", FP8: p.FP8, Out: out, In: h, Rows: rows, Gated: m.Gated(), Bias: m.LinearBias, Each: each, Init: mpu.Init{Std: m.InitStd}}),
		fc2: mpu.NewExpertLinear(at, mpu.LinearConfig{Name: name + ".linear_fc2", FP8: p.FP8, Out: h, In: f, Bias: m.LinearBias, Each: each, Init: outputInit(m)})}
	switch {
	case m.Experts.ProbsOnInput:
		x.at = weighInput
	case m.LinearBias:
		x.at = weighOutput
	}
	return x
}

func (x *experts) params() []*mpu.Param { return append(x.fc1.Params(), x.fc2.Params()...) }

// expertsSaved is what backward needs in addition to the dispatched rows.
type expertsSaved struct {
	in  Tensor // [sent rows, h]: input of fc1
	pre Tensor // [sent rows, fc1 rows here]: input of the activation
	act Tensor // [sent rows, ffn/etp]: input of fc2; none: recomputed
	out Tensor // [sent rows, h]: output of fc2, where the weight comes after it
}

// forward is the experts' output for the sent rows, in tmp, of type ExpertShare.Partial; without
// `last` it ends before fc2.
func (x *experts) forward(p *Pass, s, tmp *device.Scope, saved *mixtureSaved, last bool) (out Tensor) {
	d, at := p.D, saved.sent
	slots := at.X.Shape[0]
	// pre: [sent rows, fc1 rows here], rows sorted by expert, of which Offsets are the bounds.
	k := &expertsSaved{in: at.X, pre: s.Alloc(p.DType, slots, x.fc1.Weight.Shape[1])}
	saved.experts = k
	if x.at == weighInput {
		k.in = s.Like(at.X)
		d.ScaleRows(k.in, at.X, at.Weights)
	}
	x.fc1.Forward(d, &p.Hooks, k.pre, k.in, at.Offsets)
	// act: [sent rows, ffn/etp]
	acts := s
	if x.recomputeActs {
		acts = tmp
	}
	act := x.activate(p, acts, k.pre, at)
	if !x.recomputeActs {
		k.act = act
	}
	// The weight comes after fc2's bias: backward needs the output without it, for the weight's gradient.
	if x.at == weighOutput {
		k.out = s.Like(at.X)
		x.fc2.Forward(d, &p.Hooks, k.out, act, at.Offsets)
	}
	if !last {
		return out
	}
	// out: [sent rows, h]; a part of the sum where ranks share an expert.
	out = tmp.Alloc(x.cut.Partial(p.DType), at.X.Dims()...)
	if x.at == weighOutput {
		d.ScaleRows(out, k.out, at.Weights)
		return out
	}
	x.fc2.Forward(d, &p.Hooks, out, act, at.Offsets)
	return out
}

// activate is what goes into fc2: act(pre), weighted where it is the activation that is.
func (x *experts) activate(p *Pass, s *device.Scope, pre Tensor, at *mpu.Dispatched) Tensor {
	a := device.ActivationForwardArgs{Y: s.Alloc(p.DType, pre.Shape[0], x.fc2.Weight.Shape[2]), X: pre, Kind: x.kind, Limit: x.gate.limit, Offset: x.gate.offset}
	if x.at == weighActivation {
		a.Weights = at.Weights
	}
	p.D.ActivationForward(a)
	return a.Y
}

// backward is the gradient of the dispatched rows, of type ExpertShare.Partial, and of their
// weights; dout is used up.
func (x *experts) backward(p *Pass, s *device.Scope, saved *mixtureSaved, dout Tensor) (drows, dweights Tensor) {
	d, at, k := p.D, saved.sent, saved.experts
	tmp := d.Arena.Scope(device.Activations)
	defer tmp.Release()
	dweights = s.Like(at.Weights)
	// unweigh turns the gradient of the weighted rows into those of x and of the weights.
	unweigh := func(dy, x Tensor) {
		d.RowDots(dweights, dy, x)
		d.ScaleRows(dy, dy, at.Weights)
	}
	if x.at == weighOutput {
		unweigh(dout, k.out)
	}
	if !k.act.Given() {
		k.act = x.activate(p, tmp, k.pre, at)
	}
	dact := tmp.Like(k.act)
	x.fc2.Backward(d, dact, dout, k.act, at.Offsets, at.Leaf)
	back := device.ActivationBackwardArgs{DX: k.pre, DY: dact, X: k.pre, Kind: x.kind, Limit: x.gate.limit, Offset: x.gate.offset}
	if x.at == weighActivation {
		back.Weights, back.DWeights = at.Weights, x.byLeaf(p, tmp, dweights)
	}
	d.ActivationBackward(back)
	if back.DWeights.Rank == 2 {
		mpu.AddTree(d, back.DWeights)
		d.Copy(dweights, back.DWeights.At(0))
	}
	drows = s.Alloc(x.cut.Partial(p.DType), at.X.Dims()...)
	x.fc1.Backward(d, drows, k.pre, k.in, at.Offsets, at.Leaf)
	if x.at == weighInput {
		unweigh(drows, at.X)
	}
	return drows, dweights
}

// byLeaf is where sums over a row's channels here go: to dweights [sent rows], or of each leaf
// by itself, in tmp [leaves here, sent rows].
func (x *experts) byLeaf(p *Pass, tmp *device.Scope, dweights Tensor) Tensor {
	if x.cut.Leaves == 0 {
		return dweights
	}
	return tmp.Alloc(dweights.DType, int64(x.cut.Leaves/x.cut.Parts), dweights.Len())
}

// sharedExpert is an MLP that sees every token, its output times sigmoid(gate·x) where
// there is a gate (Qwen2-MoE).
type sharedExpert struct {
	mlp  *mlp
	gate *mpu.Linear // [1, h]; nil: none
}

func newSharedExpert(m *spec.Model, name string, p Parallel) *sharedExpert {
	narrow := *m
	narrow.FFNHiddenSize, narrow.LinearBias = m.Experts.SharedFFN, false
	e := &sharedExpert{mlp: newMLP(&narrow, name, p)}
	if m.Experts.SharedGate {
		e.gate = mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".gate", Out: 1, In: int64(m.HiddenSize), Init: mpu.Init{Std: m.InitStd}})
		e.gate.Weight.Name = name + ".gate_weight"
	}
	return e
}

// params has the gate first: Megatron's order, in which buffers of gradients and optimizer
// states lie.
func (e *sharedExpert) params() []*mpu.Param {
	if e.gate == nil {
		return e.mlp.params()
	}
	return append(e.gate.Params(), e.mlp.params()...)
}

type sharedSaved struct {
	expert *sharedExpert
	mlp    sublayerSaved
	logit  Tensor // [rows, 1]: of the gate
	open   Tensor // f32 [rows]: sigmoid of it
	out    Tensor // [rows, h]: of the MLP, before the gate
}

// forward sets y = shared(x); without a y it ends before the MLP's second product, unless
// it has a gate.
func (e *sharedExpert) forward(p *Pass, s *device.Scope, y, x Tensor) (*sharedSaved, error) {
	saved := &sharedSaved{expert: e}
	var err error
	if e.gate == nil {
		saved.mlp, err = e.mlp.forward(p, s, y, x)
		return saved, err
	}
	rows := x.Shape[0]
	saved.logit, saved.open, saved.out = s.Alloc(p.DType, rows, 1), s.Alloc(statsType(p), rows), s.Like(x)
	e.gate.Forward(p.D, saved.logit, x)
	choice := device.RouterForwardArgs{Weights: saved.open.Reshape(rows, 1), Experts: s.Alloc(device.I32, rows, 1), Logits: saved.logit, Rule: openness}
	p.D.RouterForward(choice)
	if saved.mlp, err = e.mlp.forward(p, s, saved.out, x); err != nil || !y.Given() {
		return saved, err
	}
	p.D.ScaleRows(y, saved.out, saved.open)
	return saved, nil
}

// openness is a router of one expert: its weight is the sigmoid of its logit.
var openness = device.RouterRule{Score: device.SigmoidScore, Scaling: 1}

// backward sets dx from dy; x is forward's input.
func (saved *sharedSaved) backward(p *Pass, dx, dy, x Tensor) error {
	e := saved.expert
	if e.gate == nil {
		return saved.mlp.backward(p, dx, dy, x)
	}
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	rows := x.Shape[0]
	dopen, dlogit, zero, narrow := s.Alloc(statsType(p), rows, 1), s.Alloc(statsType(p), rows, 1), s.Alloc(device.I32, rows, 1), s.Like(saved.logit)
	p.D.RowDots(dopen.Reshape(rows), dy, saved.out)
	p.D.Fill(zero, 0)
	p.D.RouterBackward(device.RouterBackwardArgs{DLogits: dlogit, DWeights: dopen, Experts: zero, Logits: saved.logit, Rule: openness})
	p.D.Copy(narrow, dlogit)
	dout, more := s.Like(dy), s.Like(dx)
	p.D.ScaleRows(dout, dy, saved.open)
	if err := saved.mlp.backward(p, dx, dout, x); err != nil {
		return err
	}
	e.gate.Backward(p.D, &p.Hooks, more, narrow, x)
	p.D.Add(dx, dx, more)
	return nil
}
