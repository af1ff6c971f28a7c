package device

// Sums without an order. An f64 holds every multiple of a power of two, the grid, up to 2^53 of
// them; numbers that are rounded to it are added without another rounding. So whatever the order
// and the grouping, over rows, micro-batches and ranks, a sum has the same bits. See
// docs/invariance.md.

// GridAddArgs: Sum += X, each element rounded to the nearest multiple of Grid f64 [1], a power of two (half
// to even; |X| below 2^51 grids); 0, or not given: X as it is. X is contiguous and as long as Sum, or has several
// rows as long as Sum, which are added one by one. Peak f32 [1], where given, becomes the largest of Peak and |X|;
// not finite numbers are larger than others.
//
//op:grid_add
type GridAddArgs struct {
	Sum  Tensor `dtype:"f64"`
	X    Tensor `dtype:"f32|f64"`
	Grid Tensor `dtype:"f64"`
	Peak Tensor `dtype:"f32"`
}

func (a *GridAddArgs) check() bool {
	return (a.Sum.Len() == a.X.Len() || a.Sum.Len() > 0 && a.X.Len()%a.Sum.Len() == 0) && a.Sum.Contiguous() && a.X.Contiguous() && optional(a.Grid, 1) && optional(a.Peak, 1) &&
		(!a.Peak.Given() || a.X.DType != F64)
}

func (a *GridAddArgs) main() Tensor { return a.Sum }

func (a *GridAddArgs) work() Work { return Work{Bytes: 2*size(a.Sum) + size(a.X)} }

// Limbs is in how many parts ExactSquares cuts a square.
const Limbs = 4

// ExactSquaresArgs: Out f64 [Limbs] += Σ (X·Scale)², X f32, |X·Scale| ≤ 1, Scale a power of two:
// each square rounded down to Limbs numbers of Bits bits, the first of which is a multiple of
// 2^-Bits. Sums are exact while fewer than 2^(52-Bits) elements are added.
//
//op:exact_squares
type ExactSquaresArgs struct {
	Out   Tensor `dtype:"f64"`
	X     Tensor `dtype:"f32"`
	Scale float64
	Bits  int64
}

func (a *ExactSquaresArgs) check() bool {
	return shaped(a.Out, Limbs) && a.X.Contiguous() && a.Bits > 0 && a.Bits < 52
}

func (a *ExactSquaresArgs) main() Tensor { return a.X }

func (a *ExactSquaresArgs) work() Work { return streamed(a.X) }
