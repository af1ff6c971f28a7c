package model

import (
	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// mlp is fc2(act(fc1(x))); a gated fc1 holds [gate; up] of its rank's channels.
type mlp struct {
	fc1  *mpu.ColumnParallelLinear
	fc2  *mpu.RowParallelLinear
	kind device.Activation
	gate gate
}

// gate is what is done to the halves of a gated activation's input: see
// device.ActivationForwardArgs.
type gate struct{ limit, offset float32 }

func gateOf(m *spec.Model) gate { return gate{float32(m.GateLimit), float32(m.GateOffset)} }

func newMLP(m *spec.Model, name string, p Parallel) *mlp { // as MLPOf gives m
	f, h := int64(m.FFNHiddenSize), int64(m.HiddenSize)
	r := p.region()
	n := f / int64(r.Size())
	rows := [][2]int64{{n * int64(r.Rank()), n}}
	if m.Gated() {
		rows = append(rows, [2]int64{f + n*int64(r.Rank()), n})
	}
	return &mlp{
		fc1:  mpu.NewColumnParallelLinear(r, mpu.LinearConfig{Name: name + ".linear_fc1", Tiles: p.Tiles, FP8: p.FP8, Out: int64(m.FC1Rows()), In: h, Rows: rows, Gated: m.Gated(), Bias: m.LinearBias, Init: mpu.Init{Std: m.InitStd}}),
		fc2:  mpu.NewRowParallelLinear(r, mpu.LinearConfig{Name: name + ".linear_fc2", Tiles: p.Tiles, FP8: p.FP8, Out: h, In: f, Bias: m.LinearBias, Init: outputInit(m)}),
		kind: activationOf(m), gate: gateOf(m),
	}
}

// activationOf is the device's activation of a model that NewStage has let through.
func activationOf(m *spec.Model) device.Activation {
	kind, err := activations.Of(m.Activation)
	if err != nil {
		panic(err)
	}
	return kind
}

func (l *mlp) params() []*mpu.Param { return append(l.fc1.Params(), l.fc2.Params()...) }

func (l *mlp) bias() Tensor { return l.fc2.BiasValue() }

// mlpSaved is what backward needs in addition to the input x.
type mlpSaved struct {
	mlp *mlp
	pre Tensor // [tokens, fc1 rows here]: what goes into the activation
	act Tensor // [tokens, ffn/tp]
}

// forward sets y = mlp(x) without fc2's bias; without a y it ends after the activation.
func (l *mlp) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	saved, err := l.inner(p, s, x)
	if err != nil || !y.Given() {
		return saved, err
	}
	return saved, l.fc2.Forward(p.D, &p.Hooks, y, saved.act)
}

// inner computes what lies between fc1 and fc2.
func (l *mlp) inner(p *Pass, s *device.Scope, x Tensor) (saved *mlpSaved, err error) {
	saved = &mlpSaved{mlp: l, pre: s.Alloc(p.DType, p.Tokens(), l.fc1.Weight.Shape[0]), act: s.Alloc(p.DType, p.Tokens(), l.fc2.Weight.Shape[1])}
	if e := epilogue(l.kind); e != device.NoEpilogue && !l.fc1.Adapted() {
		return saved, l.fc1.Forward(p.D, &p.Hooks, saved.act, x, e, saved.pre)
	}
	if err = l.fc1.Forward(p.D, &p.Hooks, saved.pre, x, device.NoEpilogue, Tensor{}); err == nil {
		p.D.ActivationForward(device.ActivationForwardArgs{Y: saved.act, X: saved.pre, Kind: l.kind, Limit: l.gate.limit, Offset: l.gate.offset})
	}
	return saved, err
}

func epilogue(kind device.Activation) device.Epilogue {
	switch kind {
	case activations.GeluTanh:
		return device.GeluTanhEpilogue
	case activations.GeluErf:
		return device.GeluErfEpilogue
	}
	return device.NoEpilogue
}

// backward sets dx from dy; x is forward's input. saved.pre is used up.
func (saved *mlpSaved) backward(p *Pass, dx, dy, x Tensor) error {
	l := saved.mlp
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	dact := s.Like(saved.act)
	if err := l.fc2.Backward(p.D, &p.Hooks, dact, dy, saved.act); err != nil {
		return err
	}
	p.D.ActivationBackward(device.ActivationBackwardArgs{DX: saved.pre, DY: dact, X: saved.pre, Kind: l.kind, Limit: l.gate.limit, Offset: l.gate.offset})
	return l.fc1.Backward(p.D, &p.Hooks, dx, saved.pre, x)
}
