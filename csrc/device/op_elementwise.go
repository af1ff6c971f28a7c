package device

// AddArgs: Out = A + B, equal shapes, contiguous; dtypes may differ; may alias.
//
//op:add
type AddArgs struct {
	Out, A, B Tensor `dtype:"eachvalue"`
}

func (a *AddArgs) check() bool {
	return same(a.Out, a.A) && same(a.A, a.B) && a.Out.Contiguous() && a.A.Contiguous() && a.B.Contiguous()
}

func (a *AddArgs) main() Tensor { return a.Out }

func (a *AddArgs) work() Work { return streamed(a.Out, a.A, a.B) }

// CopyArgs: Dst = Src, equal shapes, any strides, converted to Dst's dtype
// (round to nearest even).
//
//op:copy
type CopyArgs struct {
	Dst, Src Tensor `dtype:"any"`
}

func (a *CopyArgs) check() bool {
	return same(a.Dst, a.Src)
}

func (a *CopyArgs) main() Tensor { return a.Dst }

func (a *CopyArgs) work() Work { return streamed(a.Dst, a.Src) }

// FillArgs: every element of Out (contiguous) = Value.
//
//op:fill
type FillArgs struct {
	Out   Tensor `dtype:"any"`
	Value float64
}

func (a *FillArgs) check() bool {
	return a.Out.Contiguous()
}

func (a *FillArgs) main() Tensor { return a.Out }

func (a *FillArgs) work() Work { return streamed(a.Out) }

// UniformArgs: element i of Out f32 = word i of the stream / 2^32, in [0,1);
// word i is Philox(StepKey(Stream, *Step), (i/4 low, i/4 high, 0, 0))[i%4], its
// top 24 bits taken.
//
//op:uniform
type UniformArgs struct {
	Out    Tensor `dtype:"f32"`
	Step   Tensor `dtype:"i64"`
	Stream uint64
}

func (a *UniformArgs) check() bool {
	return a.Out.Contiguous() && shaped(a.Step, 1)
}

func (a *UniformArgs) main() Tensor { return a.Out }

func (a *UniformArgs) work() Work { return streamed(a.Out) }
