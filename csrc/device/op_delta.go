package device

// MostTaps is the longest causal convolution.
const MostTaps = 16

// CausalConvForwardArgs: Y = SiLU(Bias[c] + Σ_j W[c, j]·X[position − (kernel−1) + j, c]), with Plain the sum
// itself, each channel by itself, over the positions of a sample from its document's first on. X, Y [s·b, channels],
// rows any distance apart; W [channels, kernel], kernel at most MostTaps: the last tap is the present
// position's. Bias [channels]; none: 0.
//
//op:causal_conv_forward
type CausalConvForwardArgs struct {
	Y, X, W  Tensor `dtype:"value"`
	Bias     Tensor `dtype:"value"`
	DocStart Tensor `dtype:"i32"` // [b, s]: as of attention; none: 0
	Batch    int32
	Plain    int32
}

func (a *CausalConvForwardArgs) check() bool {
	b := int64(a.Batch)
	return b > 0 && a.X.Rank == 2 && a.X.Shape[0]%b == 0 && same(a.Y, a.X) && a.W.Rank == 2 && a.W.Last() <= MostTaps && a.W.Contiguous() && a.W.Shape[0] == a.X.Shape[1] &&
		optional(a.Bias, a.X.Last()) && optional(a.DocStart, b, a.X.Shape[0]/b)
}

func (a *CausalConvForwardArgs) main() Tensor { return a.X }

func (a *CausalConvForwardArgs) work() Work {
	return Work{2 * float64(a.X.Len()) * float64(a.W.Last()), size(a.X, a.Y, a.W)}
}

// CausalConvBackwardArgs: DX (=), DW and, with Bias, DBias (+=) from DY and what forward took; DX and DY as X.
//
//op:causal_conv_backward
type CausalConvBackwardArgs struct {
	DX        Tensor `dtype:"value"`
	DW, DBias Tensor `dtype:"f32"`
	DY, X, W  Tensor `dtype:"value"`
	Bias      Tensor `dtype:"value"`
	DocStart  Tensor `dtype:"i32"`
	Batch     int32
	Plain     int32
}

func (a *CausalConvBackwardArgs) check() bool {
	f := CausalConvForwardArgs{Y: a.DY, X: a.X, W: a.W, Bias: a.Bias, DocStart: a.DocStart, Batch: a.Batch}
	return f.check() && same(a.DX, a.X) && same(a.DW, a.W) && a.DW.Contiguous() && same(a.DBias, a.Bias)
}

func (a *CausalConvBackwardArgs) main() Tensor { return a.X }

func (a *CausalConvBackwardArgs) work() Work {
	return Work{6 * float64(a.X.Len()) * float64(a.W.Last()), size(a.X, a.DX, a.DY, a.W, a.DW)}
}

// DeltaChunk is from how many positions to how many, counted from a document's first, a delta
// rule's States have one.
const DeltaChunk = 64

// DeltaRuleForwardArgs: the gated delta rule (arXiv 2412.06464). Every value head has a state S
// [dk, dv], 0 where a document begins, and at each position
//
//	S = e^g·S,  S = S + k·(β·(v − Sᵀk))ᵀ,  O = Sᵀq
//
// with g = −e^ALog·softplus(A + DtBias), β = sigmoid(B), q = Q/(|Q|·√dk), k = K/|K|, where |x| is
// √(Σx² + 1e-6). Neighbouring value heads share a key head. O, V [s·b, value heads, dv]; Q, K
// [s·b, key heads, dk]; A, B [s·b, value heads]; ALog, DtBias [value heads]. All but the last two
// have any strides on the dimensions before the last.
//
// With StateSpace it is the scan of Mamba-2 (arXiv 2405.21060), which corrects nothing: Q is its C, K its B,
// V its x, A its dt, and B is not given. With Skip [value heads], its D, and Δ = softplus(A + DtBias), but at
// least DtMin and at most DtMax (0: no limit):
//
//	S = e^(−e^ALog·Δ)·S + K·(Δ·V)ᵀ,  O = SᵀQ + Skip·V
//
// States [b·value heads, ⌈s/DeltaChunk⌉, dk, dv], for the backward, contiguous: S before the
// positions that stand a multiple of DeltaChunk, but 0, behind their document's first, each at its
// own position / DeltaChunk; the others are not set. None: not kept.
//
//op:delta_rule_forward
type DeltaRuleForwardArgs struct {
	O, Q, K, V, A, B Tensor `dtype:"value"`
	ALog, DtBias     Tensor `dtype:"value"`
	Skip             Tensor `dtype:"value"`
	States           Tensor `dtype:"f32"`
	DocStart         Tensor `dtype:"i32"` // [b, s]: as of attention; none: 0
	Batch            int32
	StateSpace       int32
	DtMin, DtMax     float32
}

func (a *DeltaRuleForwardArgs) check() bool {
	b := int64(a.Batch)
	if b <= 0 || a.Q.Rank != 3 || a.V.Rank != 3 || a.Q.Shape[0]%b != 0 || a.Q.Shape[1] == 0 {
		return false
	}
	rows, heads := a.Q.Shape[0], a.V.Shape[1]
	return same(a.K, a.Q) && same(a.O, a.V) && a.V.Shape[0] == rows && heads%a.Q.Shape[1] == 0 && shaped(a.A, rows, heads) && a.parts(rows, heads) &&
		shaped(a.ALog, heads) && shaped(a.DtBias, heads) && optional(a.DocStart, b, rows/b) &&
		optional(a.States, b*heads, (rows/b+DeltaChunk-1)/DeltaChunk, a.Q.Last(), a.V.Last()) && (!a.States.Given() || a.States.Contiguous())
}

// parts checks what either of the two rules has and the other has not.
func (a *DeltaRuleForwardArgs) parts(rows, heads int64) bool {
	if a.StateSpace == 0 {
		return shaped(a.B, rows, heads) && !a.Skip.Given() && a.DtMin == 0 && a.DtMax == 0
	}
	return !a.B.Given() && shaped(a.Skip, heads) && a.DtMin >= 0 && (a.DtMax == 0 || a.DtMax >= a.DtMin)
}

func (a *DeltaRuleForwardArgs) main() Tensor { return a.V }

func (a *DeltaRuleForwardArgs) work() Work {
	return Work{6 * float64(a.V.Len()) * float64(a.Q.Last()), size(a.Q, a.K, a.V, a.O, a.States)}
}

// DeltaRuleBackwardArgs: DQ, DK, DV, DA, DB (=, shapes and freedom of strides of Q, K, V, A, B),
// DALog, DDtBias and, with StateSpace in place of DB, DSkip (+=) from DO and what forward took; Forward has
// States, and an O that is not read. Δ has no slope beyond its limits.
//
//op:delta_rule_backward
type DeltaRuleBackwardArgs struct {
	DQ, DK, DV, DA, DB Tensor `dtype:"value"`
	DALog, DDtBias     Tensor `dtype:"f32"`
	DSkip              Tensor `dtype:"f32"`
	DO                 Tensor `dtype:"value"`
	Forward            DeltaRuleForwardArgs
}

func (a *DeltaRuleBackwardArgs) check() bool {
	f := &a.Forward
	return f.check() && f.States.Given() && same(a.DQ, f.Q) && same(a.DK, f.K) && same(a.DV, f.V) && same(a.DA, f.A) && same(a.DB, f.B) &&
		same(a.DO, f.V) && same(a.DALog, f.ALog) && same(a.DDtBias, f.DtBias) && same(a.DSkip, f.Skip)
}

func (a *DeltaRuleBackwardArgs) main() Tensor { return a.Forward.V }

func (a *DeltaRuleBackwardArgs) work() Work {
	f := &a.Forward
	return Work{20 * float64(f.V.Len()) * float64(f.Q.Last()), size(f.Q, f.K, f.V, a.DO, a.DQ, a.DK, a.DV, f.States)}
}

// GateForwardArgs: Y = X·sigmoid(G), with Silu X·G·sigmoid(G), with Plain X·G; equal shapes, any strides on the
// dimensions before the last; Y may be X.
//
//op:gate_forward
type GateForwardArgs struct {
	Y, X, G Tensor `dtype:"value"`
	Silu    int32
	Plain   int32
}

func (a *GateForwardArgs) check() bool { return same(a.Y, a.X) && same(a.G, a.X) }

func (a *GateForwardArgs) main() Tensor { return a.X }

func (a *GateForwardArgs) work() Work { return streamed(a.Y, a.X, a.G) }

// GateBackwardArgs: DX and DG (=) from DY and what forward took; all as in GateForwardArgs. DX may
// be DY.
//
//op:gate_backward
type GateBackwardArgs struct {
	DX, DG, DY, X, G Tensor `dtype:"value"`
	Silu             int32
	Plain            int32
}

func (a *GateBackwardArgs) check() bool {
	return same(a.DX, a.X) && same(a.DG, a.X) && same(a.DY, a.X) && same(a.G, a.X)
}

func (a *GateBackwardArgs) main() Tensor { return a.X }

func (a *GateBackwardArgs) work() Work { return streamed(a.DX, a.DG, a.DY, a.X, a.G) }

// PagedCausalConvArgs is CausalConvForward for rows of several sequences whose earlier inputs lie in
// blocks, as keys do (PagedAttentionArgs). First X is stored in Inputs; then Y is made of
// these. X, Y [rows, channels], Rows, Tables as there; Inputs [blocks, PagedBlock, channels], rows
// contiguous. The rows of a sequence stand in order; a row of Y depends on its sequence alone.
//
//op:paged_causal_conv
type PagedCausalConvArgs struct {
	Y, X, W      Tensor `dtype:"value"`
	Bias         Tensor `dtype:"value"`
	Inputs       Tensor `dtype:"f32"`
	Tables, Rows Tensor `dtype:"i32"`
	Plain        int32
	_            int32
}

func (a *PagedCausalConvArgs) check() bool {
	f := CausalConvForwardArgs{Y: a.Y, X: a.X, W: a.W, Bias: a.Bias, Batch: 1}
	return f.check() && a.Inputs.Rank == 3 && shaped(a.Inputs, a.Inputs.Shape[0], PagedBlock, a.X.Last()) && a.Tables.Rank == 2 && shaped(a.Rows, a.X.Shape[0], 2)
}

func (a *PagedCausalConvArgs) main() Tensor { return a.X }

func (a *PagedCausalConvArgs) work() Work { return streamed(a.Y, a.X, a.X) }

// PagedDeltaRuleArgs is DeltaRuleForward for such rows: of each block, States has the state behind
// the last position of it that was computed, from which the next continues. States [blocks, value
// heads, dk, columns], the last two dimensions contiguous, columns the next multiple of 16 of dv:
// those beyond dv are not read. The others as in DeltaRuleForwardArgs, for a batch of 1.
//
//op:paged_delta_rule
type PagedDeltaRuleArgs struct {
	O, Q, K, V, A, B Tensor `dtype:"value"`
	ALog, DtBias     Tensor `dtype:"value"`
	Skip             Tensor `dtype:"value"`
	States           Tensor `dtype:"f32"`
	Tables, Rows     Tensor `dtype:"i32"`
	StateSpace       int32
	_                int32
	DtMin, DtMax     float32
}

func (a *PagedDeltaRuleArgs) check() bool {
	f := a.Forward()
	return f.check() && a.States.Rank == 4 && shaped(a.States, a.States.Shape[0], a.V.Shape[1], a.Q.Last(), (a.V.Last()+15)/16*16) && a.Tables.Rank == 2 && shaped(a.Rows, a.Q.Shape[0], 2)
}

// Forward is the rule of the rows as if they were one sequence.
func (a *PagedDeltaRuleArgs) Forward() DeltaRuleForwardArgs {
	return DeltaRuleForwardArgs{O: a.O, Q: a.Q, K: a.K, V: a.V, A: a.A, B: a.B, ALog: a.ALog, DtBias: a.DtBias, Skip: a.Skip, Batch: 1, StateSpace: a.StateSpace, DtMin: a.DtMin, DtMax: a.DtMax}
}

func (a *PagedDeltaRuleArgs) main() Tensor { return a.V }

func (a *PagedDeltaRuleArgs) work() Work {
	f := a.Forward()
	return f.work()
}
