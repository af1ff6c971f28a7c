package device

// NormKind chooses between LayerNorm and RMSNorm.
type NormKind int32

const (
	LayerNormKind NormKind = iota
	RMSNormKind
)

// NormForwardArgs: Y = norm(X)·Gamma + Beta over the last dimension, eps inside
// the root. X, Y [.., h] value dtype, any row strides; Gamma, Beta [h] value
// dtype (Beta none for RMSNorm); Mean (LayerNorm only), Rstd f32 [rows].
//
//op:norm_forward
type NormForwardArgs struct {
	Y, X, Gamma, Beta Tensor `dtype:"value"`
	Mean, Rstd        Tensor `dtype:"f32"`
	Eps               float32
	Kind              NormKind
	OnePlus           int32 // weights act as Gamma+1
	_                 int32
}

func (a *NormForwardArgs) check() bool {
	rows, h := a.X.Rows(), a.X.Last()
	return same(a.Y, a.X) && shaped(a.Gamma, h) && optional(a.Beta, h) && shaped(a.Rstd, rows) && optional(a.Mean, rows) &&
		(a.Kind == RMSNormKind || a.Mean.Given())
}

func (a *NormForwardArgs) main() Tensor { return a.X }

func (a *NormForwardArgs) work() Work { return streamed(a.X, a.Y) }

// NormBackwardArgs: DX = d norm + Residual (where given);
// DGamma, DBeta f32 [h] += . Other shapes as forward. With Chunk, X is [rows,h], and
// DGamma, DBeta [leaves,h] have the sums of leaves, as in ColumnSumArgs.
//
//op:norm_backward
type NormBackwardArgs struct {
	DX            Tensor `dtype:"value"`
	DGamma, DBeta Tensor `dtype:"f32"`
	DY, X, Gamma  Tensor `dtype:"value"`
	Mean, Rstd    Tensor `dtype:"f32"`
	Residual      Tensor `dtype:"value"`
	Kind          NormKind
	OnePlus       int32
	Chunk, Batch  int32
}

func (a *NormBackwardArgs) check() bool {
	rows, h := a.X.Rows(), a.X.Last()
	return same(a.DX, a.X) && same(a.DY, a.X) && sameOrNone(a.X, a.Residual) && shaped(a.Gamma, h) && ofLeaves(a.DGamma, a.X, a.Chunk, a.Batch) &&
		(!a.DBeta.Given() || ofLeaves(a.DBeta, a.X, a.Chunk, a.Batch)) &&
		shaped(a.Rstd, rows) && optional(a.Mean, rows)
}

func (a *NormBackwardArgs) main() Tensor { return a.X }

func (a *NormBackwardArgs) work() Work { return streamed(a.DX, a.DY, a.X, a.Residual) }
