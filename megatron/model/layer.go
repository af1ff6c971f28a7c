package model

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// layer, on [tokens, h], under sequence parallelism on the rank's rows of it, is two
// branches off the residual stream: attention, then the MLP, which takes what attention has
// added, or with ParallelResidual the layer's input as well. It may have one of them alone
// (spec.Sublayers).
type layer struct {
	m         *spec.Model
	number    int // global, 0-based
	region    mpu.Region
	attention mixer     // of the first branch; nil: none
	first     *branch   // nil: none
	second    *branch   // nil: none
	own       *ownInput // after both: of an embedding of the layer's own; nil: none
	scalar    Tensor    // f32 [1]: scales the layer's output; none: 1
}

func newLayer(m *spec.Model, number int, p Parallel, f Recomputed) *layer {
	l := &layer{m: m, number: number, region: p.region()}
	name := l.name()
	if p.FP8 != nil && p.KeepsOperands(number) {
		p.FP8 = nil
	}
	if m.MixerAt(number) {
		l.attention = newMixer(m, number, name, p)
		l.first = &branch{sublayer: l.attention, at: "attention_output", scale: m.ResidualScale, recomputeNorm: f.Norms}
		l.firstNorms(p)
	}
	if m.MLPAt(number) {
		l.second = &branch{sublayer: newSecondSublayer(m, number, name, p, f), at: "mlp_output", scale: m.ResidualScale, recomputeNorm: f.Norms, recomputeSublayer: f.MLP}
		if m.MixtureAt(number) {
			l.second.recomputeSublayer = f.Mixture
		}
		l.secondNorms(p)
	}
	l.own = newOwnInput(m, number, name, p)
	return l
}

// newMixer is the layer's attention, or what replaces it.
func newMixer(m *spec.Model, number int, name string, p Parallel) mixer {
	switch {
	case m.DeltaAt(number):
		return newDeltaNet(m, number, name+".self_attention", p)
	case m.ConvAt(number):
		return newShortConv(m, number, name+".self_attention", p)
	case m.MambaAt(number):
		return newMamba(m, number, name+".mixer", p)
	case m.Latent != nil:
		return newLatent(m, number, name+".self_attention", p)
	}
	return newAttention(m, number, name+".self_attention", p)
}

func (l *layer) newNorm(name string, p Parallel) *norm {
	return newNorm(l.m, l.name()+name, l.m.HiddenSize).outside(p)
}

// firstNorms gives the first branch its norms.
func (l *layer) firstNorms(p Parallel) {
	m := l.m
	if !m.NormAfter && !m.NormBehindSum {
		l.first.norm = l.newNorm(".input_layernorm", p)
	}
	if m.NormAfter || m.NormSandwich {
		l.first.post = l.newNorm(".post_self_attn_layernorm", p)
	}
	if m.NormBehindSum {
		l.first.behind = l.newNorm(".post_self_attn_layernorm", p)
	}
}

// secondNorms gives the second branch its norms.
func (l *layer) secondNorms(p Parallel) {
	m := l.m
	switch {
	case m.NormAfter || m.NormBehindSum:
	case m.ParallelOneNorm:
		l.second.norm, l.second.shared = l.first.norm, true
	case !m.ParallelMLP || !m.MixtureAt(l.number): // else it is the sublayer's
		l.second.norm = l.newNorm(".pre_mlp_layernorm", p)
	}
	if m.NormAfter || m.NormSandwich {
		l.second.post = l.newNorm(".post_mlp_layernorm", p)
	}
	if m.NormBehindSum && l.number < m.NumLayers-1 { // the last one's is the final norm
		l.second.behind = l.newNorm(".post_mlp_layernorm", p)
	}
}

// newSecondSublayer is the layer's MLP, its mixture of experts, or both.
func newSecondSublayer(m *spec.Model, number int, name string, p Parallel, f Recomputed) sublayer {
	switch {
	case m.MixtureAt(number) && m.ParallelMLP:
		return newParallelMLP(m, number, name, p, f)
	case m.MixtureAt(number):
		return newMixture(m, number, name+".mlp", p, f)
	}
	return newMLP(m.MLPOf(number), name+".mlp", p)
}

// mixture is the layer's; nil: it has none.
func (l *layer) mixture() *mixture {
	if l.second == nil {
		return nil
	}
	switch sublayer := l.second.sublayer.(type) {
	case *mixture:
		return sublayer
	case *parallelMLP:
		return sublayer.mixture
	}
	return nil
}

// prepare makes what depends on positions, and buffers that are not parameters.
func (l *layer) prepare(d *device.Device, t *positionTables) {
	if l.attention != nil {
		l.attention.prepare(d, t)
	}
	if l.m.LayerScalar {
		l.scalar = d.Arena.Alloc(device.Parameters, device.F32, 1)
		d.Fill(l.scalar, 1)
	}
}

// buffers are the layer's tensors in a checkpoint that are not parameters.
func (l *layer) buffers(write bool) []mpu.Stored {
	if !l.scalar.Given() {
		return nil
	}
	one := []int64{1}
	return []mpu.Stored{{Name: storedModel + l.name() + ".layer_scalar", Global: one, Tensor: l.scalar, Pieces: []mpu.Piece{{From: []int64{0}, Size: one}}, Write: write}}
}

func (l *layer) name() string { return l.m.LayerName(l.number) }

// params are in Megatron's order within a layer.
func (l *layer) params() []*mpu.Param {
	return append(append(l.first.params(), l.second.params()...), l.own.params()...)
}

// layerSaved is what the layer's backward needs in addition to its input.
type layerSaved struct {
	scope         *device.Scope
	first, second *branchSaved
	own           *ownSaved
	middle        Tensor // the residual stream between the branches, where it has both
}

// forward sets y = layer(x), keeping in scope s what backward needs. Without a y
// it makes only what is kept: the end of a recomputed segment, whose output the
// first time gave.
func (l *layer) forward(p *Pass, s *device.Scope, y, x Tensor) (saved *layerSaved, err error) {
	saved = &layerSaved{scope: s}
	out := y
	if l.own != nil {
		out = s.Like(x)
	}
	switch {
	case l.second == nil:
		saved.first, err = l.first.forward(p, s, l.drop(p, l.first), out, x, x)
	case l.first == nil:
		saved.second, err = l.second.forward(p, s, l.drop(p, l.second), out, x, x)
	default:
		err = l.forwardBoth(p, saved, out, x)
	}
	if err != nil {
		return nil, err
	}
	if l.own != nil {
		saved.own = l.own.forward(p, s, y, out)
	}
	if l.scalar.Given() && y.Given() {
		p.D.Scale(device.ScaleArgs{Out: y, X: y, By: 1, Factor: l.scalar})
	}
	return saved, nil
}

// forwardBoth is forward of two branches.
func (l *layer) forwardBoth(p *Pass, saved *layerSaved, out, x Tensor) (err error) {
	saved.middle = saved.scope.Like(x)
	if saved.first, err = l.first.forward(p, saved.scope, l.drop(p, l.first), saved.middle, x, x); err != nil {
		return err
	}
	taken := saved.middle
	if l.m.ParallelResidual {
		taken = x
	}
	saved.second, err = l.second.forward(p, saved.scope, l.drop(p, l.second), out, taken, saved.middle)
	return err
}

// backward sets dx from dy; x is forward's input. It uses up what was saved and
// releases its scope.
func (l *layer) backward(p *Pass, saved *layerSaved, dx, dy, x Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	defer saved.scope.Release()
	if l.scalar.Given() {
		scaled := tmp.Like(x)
		p.D.Scale(device.ScaleArgs{Out: scaled, X: dy, By: 1, Factor: l.scalar})
		dy = scaled
	}
	if l.own != nil {
		dout := tmp.Like(x)
		l.own.backward(p, saved.own, dout, dy)
		dy = dout
	}
	switch {
	case l.second == nil:
		return l.first.backward(p, saved.first, l.drop(p, l.first), dx, dy, x, dy)
	case l.first == nil:
		return l.second.backward(p, saved.second, l.drop(p, l.second), dx, dy, x, dy)
	case l.m.ParallelResidual:
		return l.backwardParallel(p, saved, tmp.Like(x), dx, dy, x)
	}
	dmiddle := tmp.Like(x)
	if err := l.second.backward(p, saved.second, l.drop(p, l.second), dmiddle, dy, saved.middle, dy); err != nil {
		return err
	}
	return l.first.backward(p, saved.first, l.drop(p, l.first), dx, dmiddle, x, dmiddle)
}

// backwardParallel is backward where both branches take x; dx2 is memory for the second's part.
func (l *layer) backwardParallel(p *Pass, saved *layerSaved, dx2, dx, dy, x Tensor) error {
	if err := l.second.backward(p, saved.second, l.drop(p, l.second), dx2, dy, x, Tensor{}); err != nil {
		return err
	}
	if err := l.first.backward(p, saved.first, l.drop(p, l.first), dx, dy, x, dy); err != nil {
		return err
	}
	p.D.Add(dx, dx, dx2)
	return nil
}

// drop is the dropout of a branch's output.
func (l *layer) drop(p *Pass, b *branch) hiddenDropout {
	return p.hidden(l.region, l.m.HiddenDropout, fmt.Sprintf("layers.%d.%s", l.number, b.at))
}
