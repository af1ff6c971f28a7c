package device

// LowRankAddArgs: Y += Scale·X·Aᵀ·op(B), the branch of a low-rank adapter (Hu et al., LoRA,
// arXiv 2106.09685). X [n,in], A [rank,in], op(B) [rank,out]: B is stored [rank,out], with TransB
// [out,rank]. Y [n,out], or [n,groups,out/groups] where a row's columns lie in equal stretches. Without A,
// X [n,rank] is the product X·Aᵀ itself. Sums are f32 and Y is rounded once; a row of Y depends on
// its row of X alone, not on how many there are. T [n,rank], where given, receives Scale·X·Aᵀ,
// which a backward pass needs.
//
//op:low_rank_add
type LowRankAddArgs struct {
	Y       Tensor `dtype:"value|f32"`
	X, A, B Tensor `dtype:"value"`
	T       Tensor `dtype:"value"`
	Scale   float32
	TransB  int32
}

func (a *LowRankAddArgs) check() bool {
	if (a.Y.Rank != 2 && a.Y.Rank != 3) || a.X.Rank != 2 || a.B.Rank != 2 || a.Y.Shape[0] != a.X.Shape[0] {
		return false
	}
	rank, out := dims(a.B, a.TransB)
	columns := a.Y.Last()
	if a.Y.Rank == 3 {
		columns *= a.Y.Shape[1]
	}
	if a.A.Given() {
		return columns == out && shaped(a.A, rank, a.X.Last()) && (!a.T.Given() || shaped(a.T, a.X.Shape[0], rank))
	}
	return columns == out && a.X.Last() == rank && !a.T.Given()
}

func (a *LowRankAddArgs) main() Tensor { return a.Y }

func (a *LowRankAddArgs) work() Work {
	n, rank := float64(a.X.Shape[0]), float64(min(a.B.Shape[0], a.B.Shape[1]))
	w := streamed(a.Y, a.Y, a.X, a.A, a.B, a.T)
	w.FLOPs = 2 * rank * float64(a.Y.Len())
	if a.A.Given() {
		w.FLOPs += 2 * n * rank * float64(a.X.Last())
	}
	return w
}
