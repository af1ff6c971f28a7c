package device

// ColumnSumArgs: Out f32 [n] += Σ_rows X [rows,n]: bias gradients.
//
//op:column_sum
type ColumnSumArgs struct {
	Out Tensor `dtype:"f32"`
	X   Tensor `dtype:"value"`
}

func (a *ColumnSumArgs) check() bool {
	return a.X.Rank == 2 && shaped(a.Out, a.X.Last())
}

func (a *ColumnSumArgs) main() Tensor { return a.X }

func (a *ColumnSumArgs) work() Work { return streamed(a.X) }

// Indexes in the f64 [3] of GradStatsArgs.
const (
	StatSquares   = iota // Σ x² over finite and non-finite alike
	StatNonFinite        // count of inf and nan
	StatZeros            // count of exact zeros
	Stats
)

// GradStatsArgs: Out f64 [3] += the statistics of X (contiguous, any dtype), or of its
// Segments [n, 2] (see AdamWArgs) alone. On ref and cpu the last segment is added first:
// parameters lie in a flat buffer in reverse order, and one by one their sum is the same.
//
//op:grad_stats
type GradStatsArgs struct {
	Out      Tensor `dtype:"f64"`
	X        Tensor `dtype:"value|f64"`
	Segments Tensor `dtype:"i64"`
}

func (a *GradStatsArgs) check() bool {
	_, ok := segments(a.Segments)
	return ok && shaped(a.Out, Stats) && a.X.Contiguous()
}

func (a *GradStatsArgs) main() Tensor { return a.X }

func (a *GradStatsArgs) work() Work { return streamed(a.X) }

// WeightedSumArgs: Out f64 [2] += (Σ X·W, Σ W); X, W f32 [n]. With Bits each X·W is rounded to a
// multiple of 2^-Bits: sums below 2^(53-Bits) are then exact.
//
//op:weighted_sum
type WeightedSumArgs struct {
	Out  Tensor `dtype:"f64"`
	X, W Tensor `dtype:"f32"`
	Bits int64
}

func (a *WeightedSumArgs) check() bool {
	return shaped(a.Out, 2) && same(a.X, a.W) && a.X.Contiguous() && a.W.Contiguous() && a.Bits >= 0 && a.Bits < 52
}

func (a *WeightedSumArgs) main() Tensor { return a.X }

func (a *WeightedSumArgs) work() Work { return streamed(a.X, a.W) }
