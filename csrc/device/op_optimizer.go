package device

// Indexes in the f32 [Hypers] that an optimizer step reads.
const (
	HyperLR          = iota // learning rate
	HyperWeightDecay        // before a group's multiplier
	HyperCorrection1        // 1−β1^t
	HyperCorrection2        // 1−β2^t
	HyperLossScale          // gradients carry this factor
	HyperGradScale          // written by GradScale: clip factor / loss scale
	HyperSkip               // written by GradScale: not 0 when a gradient is not finite
	HyperGradNorm           // written by GradScale: norm before clipping, unscaled
	Hypers
)

// GradScaleArgs turns summed statistics into the step's gradient factor:
// norm = √Squares/scale, factor = min(1, MaxNorm/(norm+1e-6))/scale (MaxNorm 0: 1/scale).
// Skip is set to NonFinite > 0, here or in Others: of gradients with a norm of their own, which
// are updated in the same step.
//
//op:grad_scale
type GradScaleArgs struct {
	Hyper   Tensor `dtype:"f32"` // [Hypers]
	Stats   Tensor `dtype:"f64"` // [Stats]
	Others  Tensor `dtype:"f64"` // [Stats]; not given: no others
	MaxNorm float32
	_       int32
}

func (a *GradScaleArgs) check() bool {
	return shaped(a.Hyper, Hypers) && shaped(a.Stats, Stats) && optional(a.Others, Stats)
}

func (a *GradScaleArgs) main() Tensor { return a.Hyper }

func (a *GradScaleArgs) work() Work { return Work{} }

// A flat buffer's segments: elements [from, to) each, in their order, none in two. An op
// leaves alone what lies between them. i64 [n, 2]; not given: one segment, all of the buffer.
func segments(t Tensor) (n int64, ok bool) {
	if !t.Given() {
		return 1, true
	}
	return t.Shape[0], shaped(t, t.Shape[0], 2) && t.Contiguous()
}

// multiplied reports whether there is a pair of multipliers for each segment.
func multiplied(segmentsOf, mults Tensor) bool {
	n, ok := segments(segmentsOf)
	return ok && shaped(mults, n, 2) && mults.Contiguous()
}

// AdamWArgs (Loshchilov and Hutter, arXiv 1711.05101): g = Grad·GradScale,
// M = β1M+(1−β1)g, V = β2V+(1−β2)g², Param −= lr·(M/c1/(√(V/c2)+eps) + wd·Param).
// Param, Grad, M, V f32, equal lengths; Model, where given, receives Param in the
// value dtype. Each of Segments has its own lr and wd: Hyper's by the two of Mults [n, 2].
// Nothing changes when Hyper says skip.
//
//op:adamw
type AdamWArgs struct {
	Param, Grad, M, V Tensor `dtype:"f32"`
	Model             Tensor `dtype:"value"`
	Hyper             Tensor `dtype:"f32"`
	Segments          Tensor `dtype:"i64"`
	Mults             Tensor `dtype:"f32"`
	Beta1, Beta2, Eps float32
	_                 int32
}

func (a *AdamWArgs) check() bool {
	return same(a.Grad, a.Param) && same(a.M, a.Param) && same(a.V, a.Param) && sameOrNone(a.Param, a.Model) && shaped(a.Hyper, Hypers) &&
		a.Param.Contiguous() && multiplied(a.Segments, a.Mults)
}

func (a *AdamWArgs) main() Tensor { return a.Param }

func (a *AdamWArgs) work() Work {
	return Work{Bytes: 2*size(a.Param, a.M, a.V) + size(a.Grad, a.Model)}
}

// SGDArgs: g = Grad·GradScale + wd·Param, Momentum = μ·Momentum + g (the buffer
// may be none when Mu is 0), Param −= lr·Momentum; as torch.optim.SGD. Segments and
// Mults as AdamW's.
//
//op:sgd
type SGDArgs struct {
	Param, Grad, Momentum Tensor `dtype:"f32"`
	Model                 Tensor `dtype:"value"`
	Hyper                 Tensor `dtype:"f32"`
	Segments              Tensor `dtype:"i64"`
	Mults                 Tensor `dtype:"f32"`
	Mu                    float32
	_                     int32
}

func (a *SGDArgs) check() bool {
	return same(a.Grad, a.Param) && sameOrNone(a.Param, a.Momentum) && (a.Momentum.Given() || a.Mu == 0) && sameOrNone(a.Param, a.Model) &&
		shaped(a.Hyper, Hypers) && a.Param.Contiguous() && multiplied(a.Segments, a.Mults)
}

func (a *SGDArgs) main() Tensor { return a.Param }

func (a *SGDArgs) work() Work {
	return Work{Bytes: 2*size(a.Param, a.Momentum) + size(a.Grad, a.Model)}
}

// LionArgs (Chen et al., arXiv 2302.06675): g = Grad·GradScale, u = sign(β1M+(1−β1)g),
// M = β2M+(1−β2)g, Param −= lr·(u + wd·Param); the sign of 0 is 0. Segments and Mults as
// AdamW's.
//
//op:lion
type LionArgs struct {
	Param, Grad, M Tensor `dtype:"f32"`
	Model          Tensor `dtype:"value"`
	Hyper          Tensor `dtype:"f32"`
	Segments       Tensor `dtype:"i64"`
	Mults          Tensor `dtype:"f32"`
	Beta1, Beta2   float32
}

func (a *LionArgs) check() bool {
	return same(a.Grad, a.Param) && same(a.M, a.Param) && sameOrNone(a.Param, a.Model) && shaped(a.Hyper, Hypers) &&
		a.Param.Contiguous() && multiplied(a.Segments, a.Mults)
}

func (a *LionArgs) main() Tensor { return a.Param }

func (a *LionArgs) work() Work {
	return Work{Bytes: 2*size(a.Param, a.M) + size(a.Grad, a.Model)}
}
