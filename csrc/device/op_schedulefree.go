package device

// ScheduleFreeArgs (Defazio et al., arXiv 2405.15682, AdamW's form): X is the average of the weights, Z where
// steps go, and gradients are those at Y, between the two:
//
//	Y = β1·X + (1−β1)·Z
//	g = Grad·GradScale
//	V = β2·V + (1−β2)·g²
//	Z −= lr·(g/(√(V/c2)+eps) + wd·Y)
//	X = (1−c)·X + c·Z
//
// Model, where given, receives X in the value dtype, also when Hyper says skip, and then nothing else changes.
// X, Z, V, Grad f32, equal lengths; Segments and Mults are AdamW's; lr, wd, c (RateAverage) and c2 = 1−β2^t
// are Rates'.
//
//op:schedule_free
type ScheduleFreeArgs struct {
	X, Z, V, Grad     Tensor `dtype:"f32"`
	Model             Tensor `dtype:"value"`
	Hyper             Tensor `dtype:"f32"`
	Rates             Tensor `dtype:"f64"`
	Segments          Tensor `dtype:"i64"`
	Mults             Tensor `dtype:"f32"`
	Beta1, Beta2, Eps float32
	_                 int32
}

func (a *ScheduleFreeArgs) check() bool {
	return same(a.Z, a.X) && same(a.V, a.X) && same(a.Grad, a.X) && sameOrNone(a.X, a.Model) && shaped(a.Hyper, Hypers) && shaped(a.Rates, Rates) &&
		a.X.Contiguous() && multiplied(a.Segments, a.Mults)
}

func (a *ScheduleFreeArgs) main() Tensor { return a.X }

func (a *ScheduleFreeArgs) work() Work {
	return Work{Bytes: 2*size(a.X, a.Z, a.V) + size(a.Grad, a.Model)}
}

// BlendArgs: Out = A·X + (1−A)·Y, X and Y f32 of equal lengths, contiguous; Out in the value dtype.
//
//op:blend
type BlendArgs struct {
	Out  Tensor `dtype:"value"`
	X, Y Tensor `dtype:"f32"`
	A    float32
	_    int32
}

func (a *BlendArgs) check() bool {
	return same(a.X, a.Out) && same(a.Y, a.Out) && a.Out.Contiguous() && a.X.Contiguous() && a.Y.Contiguous()
}

func (a *BlendArgs) main() Tensor { return a.Out }

func (a *BlendArgs) work() Work { return streamed(a.Out, a.X, a.Y) }
