package device

import "fmt"

// ExpertOrderArgs sorts what tokens have chosen by group, a group's tokens in their order:
// Rows i32 [t·k] the token of each slot, Slots i32 [t,k] the slot of each choice, Offsets
// i32 [n+1] where each group's slots begin. Of Experts i32 [t,k] those in
// [Start, Start+n·Width) count, Width of them a group: one where groups are experts, more
// where they are ranks. With Once a token has one slot in a group, its first choice's.
// Slots of choices without one, and Rows past the last slot, are −1.
//
// With Chunk tokens are rows of samples, i·Batch+j the i-th of sample j, and a group's tokens are
// in the order of their leaves, each Chunk rows of one sample: chunk by chunk, sample by sample.
//
//op:expert_order
type ExpertOrderArgs struct {
	Rows, Slots, Offsets Tensor `dtype:"i32"`
	Experts              Tensor `dtype:"i32"`
	Start, Width         int64
	Once                 int32
	Chunk                int32 // 0: tokens are in the order of rows
	Batch                int32
	_                    int32
}

func (a *ExpertOrderArgs) check() bool {
	return a.Experts.Rank == 2 && same(a.Slots, a.Experts) && shaped(a.Rows, a.Experts.Len()) && a.Offsets.Rank == 1 && a.Offsets.Shape[0] > 1 && a.Width > 0 &&
		(a.Chunk == 0 || a.Chunk > 0 && a.Batch > 0 && a.Experts.Shape[0]%(int64(a.Chunk)*int64(a.Batch)) == 0)
}

func (a *ExpertOrderArgs) main() Tensor { return a.Experts }

func (a *ExpertOrderArgs) work() Work { return streamed(a.Experts, a.Rows, a.Slots, a.Offsets) }

// GatherRowsArgs: Out [n,c] = In[Rows], any dtype, bit for bit; zero where Rows i32 [n] names
// no row of In.
//
//op:gather_rows
type GatherRowsArgs struct {
	Out, In Tensor `dtype:"value|f32|i32"`
	Rows    Tensor `dtype:"i32"`
}

func (a *GatherRowsArgs) check() bool {
	return a.Out.Rank == 2 && a.In.Rank == 2 && a.Out.DType == a.In.DType && a.Out.Last() == a.In.Last() && shaped(a.Rows, a.Out.Shape[0])
}

func (a *GatherRowsArgs) main() Tensor { return a.Out }

func (a *GatherRowsArgs) work() Work { return streamed(a.Out, a.Out, a.Rows) }

// CombineRowsArgs: Out [t,h] = Σ_j In[Slots[t,j]], in the order of j, in f32, rounded
// once; a slot outside In's rows gives nothing.
//
//op:combine_rows
type CombineRowsArgs struct {
	Out, In Tensor `dtype:"value"`
	Slots   Tensor `dtype:"i32"`
}

func (a *CombineRowsArgs) check() bool {
	return a.Out.Rank == 2 && a.In.Rank == 2 && a.Out.Last() == a.In.Last() && a.Slots.Rank == 2 && a.Slots.Shape[0] == a.Out.Shape[0]
}

func (a *CombineRowsArgs) main() Tensor { return a.Out }

func (a *CombineRowsArgs) work() Work {
	return Work{Bytes: size(a.Out)*float64(1+a.Slots.Last()) + size(a.Slots)}
}

// GroupedMatmulArgs are products of groups of rows with a matrix each: rows
// [Offsets[g], Offsets[g+1]) of A are group g's. C [n,c] = A [n,k] · B[g], B [G,k,c], or
// stored [G,c,k] with TransB, + Bias[g] [G,c]. With TransA the rows are what is summed
// over: C f32 [G,m,c] += A[rows of g]ᵀ · B[rows of g], A [n,m], B [n,c]: weight gradients.
// Rows past the last offset are neither read nor written. Sums in f32; a row's result does
// not depend on the other rows.
//
// Leaves and Stretches say how sums over k are made, as MatmulArgs says (no TransA).
//
// Grid given (TransA): C f64 is the Sum of a GridAdd of each leaf's product, with its Grid and Peak.
// A leaf is neighbouring rows of a group with the same number in Leaf i32 [n], summed in f32 in
// rising order.
//
//op:grouped_matmul
type GroupedMatmulArgs struct {
	C         Tensor `dtype:"value|f32|f64"`
	A, B      Tensor `dtype:"value"`
	Bias      Tensor `dtype:"value"`
	Offsets   Tensor `dtype:"i32"`
	Leaf      Tensor `dtype:"i32"`
	Grid      Tensor `dtype:"f64"`
	Peak      Tensor `dtype:"f32"`
	TransA    int32
	TransB    int32
	Leaves    int32
	Stretches int32
}

func (a *GroupedMatmulArgs) check() bool {
	groups := a.Offsets.Shape[0] - 1
	if a.A.Rank != 2 || a.Offsets.Rank != 1 || groups < 1 {
		return false
	}
	if a.TransA != 0 {
		return onGrid(a.C, a.A, a.Grid, a.Peak, a.Leaf) && a.Leaves == 0 && a.Stretches == 0 && a.B.Rank == 2 && a.B.Shape[0] == a.A.Shape[0] && shaped(a.C, groups, a.A.Last(), a.B.Last()) && !a.Bias.Given() && a.TransB == 0
	}
	if a.B.Rank != 3 || a.C.Rank != 2 || a.C.Shape[0] != a.A.Shape[0] || a.B.Shape[0] != groups {
		return false
	}
	k, c := dims(a.B.At(0), a.TransB)
	return k == a.A.Last() && c == a.C.Last() && optional(a.Bias, groups, c) && !a.Grid.Given() && (a.C.DType != F64 || a.A.DType == F64) && leavesFit(a.Leaves, a.Stretches, k)
}

// onGrid reports whether a sum over rows, f64 where there is a grid, and what comes with it fit.
func onGrid(sum, rows, grid, peak, leaf Tensor) bool {
	if !grid.Given() {
		return !peak.Given() && !leaf.Given() && (sum.DType != F64 || rows.DType == F64)
	}
	return sum.DType == F64 && shaped(grid, 1) && shaped(peak, 1) && shaped(leaf, rows.Shape[0])
}

func (a *GroupedMatmulArgs) main() Tensor { return a.C }

// work counts all rows as if they belonged to a group.
func (a *GroupedMatmulArgs) work() Work {
	return Work{2 * float64(a.A.Len()) * float64(a.C.Last()), size(a.A, a.B, a.C)}
}

func (a *GroupedMatmulArgs) describe() string {
	if a.TransA != 0 {
		return fmt.Sprintf("%s %dx%dx%d of %d groups tn +=", a.A.DType, a.A.Last(), a.C.Last(), a.A.Shape[0], a.C.Shape[0])
	}
	return fmt.Sprintf("%s %dx%dx%d of %d groups n%c", a.A.DType, a.A.Shape[0], a.C.Last(), a.A.Last(), a.B.Shape[0], "nt"[min(1, a.TransB)])
}

// GroupedSumArgs: Out f32 [G,c] += Σ of each group's rows of X [n,c]: bias gradients. Grid
// given: Out f64 is the Sum of a GridAdd of each leaf's sum, as of GroupedMatmulArgs.
//
//op:grouped_sum
type GroupedSumArgs struct {
	Out     Tensor `dtype:"f32|f64"`
	X       Tensor `dtype:"value"`
	Offsets Tensor `dtype:"i32"`
	Leaf    Tensor `dtype:"i32"`
	Grid    Tensor `dtype:"f64"`
	Peak    Tensor `dtype:"f32"`
}

func (a *GroupedSumArgs) check() bool {
	return a.X.Rank == 2 && a.Offsets.Rank == 1 && shaped(a.Out, a.Offsets.Shape[0]-1, a.X.Last()) && onGrid(a.Out, a.X, a.Grid, a.Peak, a.Leaf)
}

func (a *GroupedSumArgs) main() Tensor { return a.X }

func (a *GroupedSumArgs) work() Work { return streamed(a.X, a.Out) }

// ScaleRowsArgs: Y [n,c] = X [n,c] · Weight f32 [n], a row each. Y may alias X.
//
//op:scale_rows
type ScaleRowsArgs struct {
	Y, X   Tensor `dtype:"value"`
	Weight Tensor `dtype:"f32"`
}

func (a *ScaleRowsArgs) check() bool {
	return a.X.Rank == 2 && same(a.Y, a.X) && shaped(a.Weight, a.X.Shape[0])
}

func (a *ScaleRowsArgs) main() Tensor { return a.X }

func (a *ScaleRowsArgs) work() Work { return streamed(a.X, a.Y, a.Weight) }

// RowDotsArgs: Out f32 [n] = Σ over a row of X·Y, both [n,c].
//
//op:row_dots
type RowDotsArgs struct {
	Out  Tensor `dtype:"f32"`
	X, Y Tensor `dtype:"value"`
}

func (a *RowDotsArgs) check() bool {
	return a.X.Rank == 2 && same(a.X, a.Y) && shaped(a.Out, a.X.Shape[0])
}

func (a *RowDotsArgs) main() Tensor { return a.X }

func (a *RowDotsArgs) work() Work { return streamed(a.X, a.Y, a.Out) }

// PlaceChoicesArgs moves numbers between tokens' choices and slots: with Back unset
// Placed[Slots[i]] = Chosen[i] for each i of [t·k] with a slot, slots
// without a choice 0; with Back set Chosen[i] = Placed[Slots[i]], 0 without a slot. Both
// f32 or both i32, Placed [n], Chosen and Slots [t,k].
//
//op:place_choices
type PlaceChoicesArgs struct {
	Placed, Chosen Tensor `dtype:"f32|i32"`
	Slots          Tensor `dtype:"i32"`
	Back           int32
	_              int32
}

func (a *PlaceChoicesArgs) check() bool {
	return a.Placed.Rank == 1 && same(a.Chosen, a.Slots) && a.Placed.DType == a.Chosen.DType
}

func (a *PlaceChoicesArgs) main() Tensor { return a.Placed }

func (a *PlaceChoicesArgs) work() Work { return streamed(a.Placed, a.Chosen, a.Slots) }
