package device

// ScaleArgs: Out = By·Factor·X, equal shapes, contiguous, value dtype; Out may be X. Factor [1];
// none: 1.
//
//op:scale
type ScaleArgs struct {
	Out, X Tensor `dtype:"value"`
	Factor Tensor `dtype:"f32"`
	By     float32
	_      int32
}

func (a *ScaleArgs) check() bool {
	return same(a.Out, a.X) && a.Out.Contiguous() && a.X.Contiguous() && optional(a.Factor, 1)
}

func (a *ScaleArgs) main() Tensor { return a.X }

func (a *ScaleArgs) work() Work { return streamed(a.Out, a.X) }

// SoftCapArgs: Out = Cap·tanh(X/Cap), equal shapes, contiguous; Out may be X (Gemma 2).
//
//op:soft_cap
type SoftCapArgs struct {
	Out, X Tensor `dtype:"value"`
	Cap    float32
	_      int32
}

func (a *SoftCapArgs) check() bool {
	return same(a.Out, a.X) && a.Out.Contiguous() && a.X.Contiguous() && a.Cap > 0
}

func (a *SoftCapArgs) main() Tensor { return a.X }

func (a *SoftCapArgs) work() Work { return streamed(a.Out, a.X) }

// SoftCapBackwardArgs: DX = DY·(1 − (Y/Cap)²), Y what SoftCap gave; equal shapes,
// contiguous; DX may be DY.
//
//op:soft_cap_backward
type SoftCapBackwardArgs struct {
	DX, DY Tensor `dtype:"value"`
	Y      Tensor `dtype:"eachvalue"`
	Cap    float32
	_      int32
}

func (a *SoftCapBackwardArgs) check() bool {
	return same(a.DX, a.DY) && same(a.Y, a.DY) && a.DX.Contiguous() && a.DY.Contiguous() && a.Y.Contiguous() && a.Cap > 0
}

func (a *SoftCapBackwardArgs) main() Tensor { return a.DY }

func (a *SoftCapBackwardArgs) work() Work { return streamed(a.DX, a.DY, a.Y) }

// AttentionSinkArgs adds to the softmax of an attention, head by head, one key whose score
// is Sinks[head] and whose value is 0: with L = log(e^LSE + e^sink), O = O·e^(LSE−L) and
// LSE = L. O [sq·b, groups, heads per group, d], any strides on the first three dimensions;
// LSE [b, heads, sq], contiguous; Sinks [heads].
//
//op:attention_sink
type AttentionSinkArgs struct {
	O     Tensor `dtype:"eachvalue"`
	LSE   Tensor `dtype:"f32"`
	Sinks Tensor `dtype:"eachvalue"`
}

func (a *AttentionSinkArgs) check() bool {
	return sinkShapes(a.O, a.LSE, a.Sinks)
}

// sinkShapes reports whether O, LSE and Sinks are of the same attention.
func sinkShapes(o, lse, sinks Tensor) bool {
	return o.Rank == 4 && lse.Rank == 3 && lse.Contiguous() && o.Shape[0] == lse.Shape[0]*lse.Shape[2] && lse.Shape[1] == o.Shape[1]*o.Shape[2] && shaped(sinks, lse.Shape[1])
}

func (a *AttentionSinkArgs) main() Tensor { return a.O }

func (a *AttentionSinkArgs) work() Work { return streamed(a.O, a.O, a.LSE) }

// AttentionSinkBackwardArgs: DSinks [heads] += −Σ e^(sink−LSE)·(DO·O) over the queries of a
// head, with O and LSE as AttentionSink left them. The gradients of queries, keys and values
// are AttentionBackward's with these O and LSE.
//
//op:attention_sink_backward
type AttentionSinkBackwardArgs struct {
	DSinks Tensor `dtype:"f32"`
	O, DO  Tensor `dtype:"value"`
	LSE    Tensor `dtype:"f32"`
	Sinks  Tensor `dtype:"eachvalue"`
}

func (a *AttentionSinkBackwardArgs) check() bool {
	return sinkShapes(a.O, a.LSE, a.Sinks) && same(a.DO, a.O) && same(a.DSinks, a.Sinks)
}

func (a *AttentionSinkBackwardArgs) main() Tensor { return a.O }

func (a *AttentionSinkBackwardArgs) work() Work { return streamed(a.O, a.DO, a.LSE) }
