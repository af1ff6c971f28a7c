package device

// Dropout names the random numbers of a mask. Element (position, sample,
// head, channel) is dropped when its 32-bit word is below Rate·2^32; the word is
// Philox4x32-10 with key StepKey(Stream, *Step) and counter
// (channel/4, position, sample, head), word channel%4. Kept values are divided by
// 1-Rate. So a mask depends on no layout, and backward draws it again.
//
// With Jitter instead of a Rate, which attention does not know, an element is multiplied by
// 1 + Jitter·(2u − 1), where u in [0, 1) is the top 24 bits of its word.
type Dropout struct {
	Stream   uint64 // StreamKey(seed, name with the global layer)
	Step     Tensor `dtype:"i64"` // [1]
	Samples  Tensor `dtype:"i32"` // [b]: each column's sample number in the global batch
	Rate     float32
	Position int32 // of the first row
	Channel  int32 // of the first channel; of the first head in attention
	Jitter   float32
}

// none reports whether nothing is drawn.
func (r *Dropout) none() bool { return r.Rate == 0 && r.Jitter == 0 }

// of names a call by x's shape, and by whether it draws: at the same sizes that takes longer.
func (r *Dropout) of(x Tensor) string {
	switch {
	case r.Rate > 0:
		return x.String() + " dropped"
	case r.Jitter > 0:
		return x.String() + " jittered"
	}
	return x.String()
}

func (r *Dropout) fits(rows int64) bool {
	return r.none() || (r.Rate == 0 || r.Jitter == 0) && (shaped(r.Step, 1) && r.Samples.Rank == 1 && rows%r.Samples.Len() == 0)
}

// DropoutAddArgs: Out = Residual + drop(X + Bias), all [tokens,h]; Bias [h] and
// Residual may be none; Out may alias X or Residual. Rate 0: no dropping.
//
//op:dropout_add
type DropoutAddArgs struct {
	Out, X, Bias, Residual Tensor `dtype:"value"`
	Drop                   Dropout
}

func (a *DropoutAddArgs) check() bool {
	return a.X.Rank == 2 && same(a.Out, a.X) && optional(a.Bias, a.X.Last()) && sameOrNone(a.X, a.Residual) && a.Drop.fits(a.X.Shape[0])
}

func (a *DropoutAddArgs) main() Tensor { return a.X }

func (a *DropoutAddArgs) describe() string { return a.Drop.of(a.X) }

func (a *DropoutAddArgs) work() Work { return streamed(a.Out, a.X, a.Residual) }

// DropoutBackwardArgs: DX = mask·DY/(1−Rate); DX may alias DY.
//
//op:dropout_backward
type DropoutBackwardArgs struct {
	DX, DY Tensor `dtype:"value"`
	Drop   Dropout
}

func (a *DropoutBackwardArgs) check() bool {
	return a.DY.Rank == 2 && same(a.DX, a.DY) && a.Drop.fits(a.DY.Shape[0])
}

func (a *DropoutBackwardArgs) main() Tensor { return a.DY }

func (a *DropoutBackwardArgs) describe() string { return a.Drop.of(a.DY) }

func (a *DropoutBackwardArgs) work() Work { return streamed(a.DX, a.DY) }
