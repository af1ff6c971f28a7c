package device

// ColumnSumArgs: Out f32 [n] += Σ_rows X [rows,n]: bias gradients. With Chunk, Out [rows/Chunk,n] has the sums of
// leaves: leaf l has the Chunk rows l/Batch·Chunk·Batch + l%Batch + i·Batch, positions of a sample as in MatmulArgs.
// A leaf's sum has the same bits as that of its rows alone.
//
//op:column_sum
type ColumnSumArgs struct {
	Out          Tensor `dtype:"f32"`
	X            Tensor `dtype:"value"`
	Chunk, Batch int32
}

func (a *ColumnSumArgs) check() bool {
	return a.X.Rank == 2 && ofLeaves(a.Out, a.X, a.Chunk, a.Batch)
}

// ofLeaves reports whether sums over the rows of x [rows,n] are [n], or with chunk [leaves,n], in any rows.
func ofLeaves(sums, x Tensor, chunk, batch int32) bool {
	if chunk == 0 {
		return shaped(sums, x.Last())
	}
	return x.Rank == 2 && chunk > 0 && batch > 0 && x.Shape[0]%(int64(chunk)*int64(batch)) == 0 &&
		sums.Rank == 2 && sums.Shape[0] == x.Shape[0]/int64(chunk) && sums.Shape[1] == x.Shape[1] && sums.Stride[1] == 1
}

func (a *ColumnSumArgs) main() Tensor { return a.X }

func (a *ColumnSumArgs) work() Work { return streamed(a.X) }

// Leaf is a view of the rows of a leaf of t [rows, ..]: `chunk` of them, `batch` apart (ColumnSumArgs). A tensor that is
// not given stays so.
func (t Tensor) Leaf(number, chunk, batch int64) Tensor {
	if !t.Given() {
		return t
	}
	shape, stride := t.Dims(), append([]int64{}, t.Stride[:t.Rank]...)
	shape[0], stride[0] = chunk, batch*stride[0]
	return Strided(t.Slice(0, number/batch*chunk*batch+number%batch, 1).Data, t.DType, shape, stride)
}

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
