package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// parallelMLP is an MLP and a mixture of experts in parallel (Gemma 4 26B-A4B), each between norms of its own; the
// experts' and the router's take the residual stream itself:
//
//	y = norm(mlp(norm x)) + norm(experts(norm x, router x))
type parallelMLP struct {
	mlp     *mlp
	mixture *mixture

	mlpIn, mlpOut         *norm
	expertsIn, expertsOut *norm
}

func newParallelMLP(m *spec.Model, layer int, name string, p Parallel, f Recomputed) *parallelMLP {
	made := func(name string) *norm { return newNorm(m, name, m.HiddenSize).outside(p) }
	return &parallelMLP{mlp: newMLP(m.MLPOf(layer), name+".mlp", p), mixture: newMixture(m, layer, name+".mlp", p, f),
		mlpIn: made(name + ".pre_mlp_layernorm"), mlpOut: made(name + ".mlp.post_mlp_layernorm"),
		expertsIn: made(name + ".mlp.pre_experts_layernorm"), expertsOut: made(name + ".mlp.post_experts_layernorm")}
}

func (b *parallelMLP) params() (ps []*mpu.Param) {
	for _, n := range []*norm{b.mlpIn, b.mlpOut, b.expertsIn, b.expertsOut} {
		ps = append(ps, n.params()...)
	}
	return append(append(ps, b.mlp.params()...), b.mixture.params()...)
}

// bias: what is added up has been normed.
func (b *parallelMLP) bias() Tensor { return Tensor{} }

type parallelSaved struct {
	sublayer *parallelMLP

	mlpNormed, mlpOut         Tensor // what the MLP takes and gives, [rows, h]
	expertsNormed, expertsOut Tensor // what the experts take and give
	mlpStats, expertsStats    [2]normSaved
	mlp                       sublayerSaved
	mixture                   sublayerSaved
}

// forward sets y of the rows here; without a y it makes only what is kept.
func (b *parallelMLP) forward(p *Pass, s *device.Scope, y, x Tensor) (sublayerSaved, error) {
	saved := &parallelSaved{sublayer: b, mlpNormed: s.Like(x), mlpOut: s.Like(x), expertsNormed: s.Like(x), expertsOut: s.Like(x)}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	var err error
	// The MLP.
	saved.mlpStats[0] = b.mlpIn.forward(p, s, saved.mlpNormed, x)
	if saved.mlp, err = b.mlp.forward(p, s, saved.mlpOut, saved.mlpNormed); err != nil {
		return nil, err
	}
	first := tmp.Like(x)
	saved.mlpStats[1] = b.mlpOut.forward(p, s, first, saved.mlpOut)
	// The experts, whose router sees x.
	saved.expertsStats[0] = b.expertsIn.forward(p, s, saved.expertsNormed, x)
	if saved.mixture, err = b.mixture.forwardSeeing(p, s, saved.expertsOut, saved.expertsNormed, x); err != nil {
		return nil, err
	}
	second := tmp.Like(x)
	saved.expertsStats[1] = b.expertsOut.forward(p, s, second, saved.expertsOut)
	if y.Given() {
		p.D.Add(y, first, second)
	}
	return saved, nil
}

// backward sets dx from dy; x is forward's input.
func (saved *parallelSaved) backward(p *Pass, dx, dy, x Tensor) error {
	b := saved.sublayer
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	dout, din := s.Like(dy), s.Like(dy)
	// The experts: by what they take, and by what the router sees.
	b.expertsOut.backward(p, saved.expertsStats[1], dout, dy, saved.expertsOut, Tensor{})
	seen := s.Like(dy)
	if err := saved.mixture.(*mixtureSaved).backwardSeeing(p, din, seen, dout, saved.expertsNormed, x); err != nil {
		return err
	}
	b.expertsIn.backward(p, saved.expertsStats[0], dx, din, x, seen)
	// The MLP.
	b.mlpOut.backward(p, saved.mlpStats[1], dout, dy, saved.mlpOut, Tensor{})
	if err := saved.mlp.backward(p, din, dout, saved.mlpNormed); err != nil {
		return err
	}
	b.mlpIn.backward(p, saved.mlpStats[0], seen, din, x, dx)
	p.D.Copy(dx, seen)
	return nil
}
