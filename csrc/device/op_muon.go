package device

// The parts of Muon (Jordan et al., 2024) that are not products of matrices: an average of
// gradients, a matrix of norm 1, a polynomial of one, and a step along what comes out.

// MomentumArgs: g = Grad·GradScale, M = μM+(1−μ)g; Out, where given, is (1−μ)g+μM
// (Nesterov). Equal lengths, contiguous. Nothing changes when Hyper says skip.
//
//op:momentum
type MomentumArgs struct {
	M, Out, Grad Tensor `dtype:"f32"`
	Hyper        Tensor `dtype:"f32"`
	Mu           float32
	_            int32
}

func (a *MomentumArgs) check() bool {
	return same(a.Grad, a.M) && sameOrNone(a.M, a.Out) && shaped(a.Hyper, Hypers) && a.M.Contiguous() && a.Grad.Contiguous() &&
		(!a.Out.Given() || a.Out.Contiguous())
}

func (a *MomentumArgs) main() Tensor { return a.M }

func (a *MomentumArgs) work() Work { return Work{Bytes: 2*size(a.M) + size(a.Grad, a.Out)} }

// NormalizeArgs: Out = X / (Stretch·max(√Stats[StatSquares], Eps) + Plus), X f32; equal shapes, contiguous.
//
//op:normalize
type NormalizeArgs struct {
	Out                Tensor `dtype:"value"`
	X                  Tensor `dtype:"f32"`
	Stats              Tensor `dtype:"f64"` // [Stats] of X
	Eps, Stretch, Plus float32
	_                  int32
}

func (a *NormalizeArgs) check() bool {
	return same(a.Out, a.X) && a.Out.Contiguous() && a.X.Contiguous() && shaped(a.Stats, Stats)
}

func (a *NormalizeArgs) main() Tensor { return a.Out }

func (a *NormalizeArgs) work() Work { return streamed(a.Out, a.X) }

// PolynomialArgs: Out = A·I + B·X + C·Y, all [n,n], contiguous, of one value dtype; Y, the
// square of X, is not given where C is 0. Out may be X or Y.
//
//op:polynomial
type PolynomialArgs struct {
	Out, X, Y Tensor `dtype:"value"`
	A, B, C   float32
	_         int32
}

func (a *PolynomialArgs) check() bool {
	return a.X.Rank == 2 && a.X.Shape[0] == a.X.Shape[1] && same(a.Out, a.X) && sameOrNone(a.X, a.Y) && (a.Y.Given() || a.C == 0) &&
		a.Out.Contiguous() && a.X.Contiguous() && (!a.Y.Given() || a.Y.Contiguous())
}

func (a *PolynomialArgs) main() Tensor { return a.Out }

func (a *PolynomialArgs) work() Work { return streamed(a.Out, a.X, a.Y) }

// FollowArgs: Param −= lr·(By·Direction + wd·Param), with lr and wd of Hyper, and wd times
// Decay. Equal lengths, contiguous; Model, where given, receives Param in the value dtype.
// Nothing changes when Hyper says skip.
//
//op:follow
type FollowArgs struct {
	Param, Direction Tensor `dtype:"f32"`
	Model            Tensor `dtype:"value"`
	Hyper            Tensor `dtype:"f32"`
	By, Decay        float32
}

func (a *FollowArgs) check() bool {
	return same(a.Direction, a.Param) && sameOrNone(a.Param, a.Model) && shaped(a.Hyper, Hypers) && a.Param.Contiguous() && a.Direction.Contiguous()
}

func (a *FollowArgs) main() Tensor { return a.Param }

func (a *FollowArgs) work() Work { return Work{Bytes: 2*size(a.Param) + size(a.Direction, a.Model)} }

// NorMuonArgs (Li et al., arXiv 2510.05491) divides X by the root of V, an average of its squares along the
// shorter side, and restores its length:
//
//	V = β2·V + (1−β2)·mean(X²)
//	X' = X/√max(V, Eps)
//	X = X'·‖X‖/max(‖X'‖, Eps)
//
// X f32 [m,n], contiguous; V f32 [m] of rows where m ≥ n, else [n] of columns. Nothing changes when Hyper
// says skip.
//
//op:normuon
type NorMuonArgs struct {
	X, V       Tensor `dtype:"f32"`
	Hyper      Tensor `dtype:"f32"`
	Beta2, Eps float32
}

func (a *NorMuonArgs) check() bool {
	return a.X.Rank == 2 && a.X.Contiguous() && shaped(a.V, max(a.X.Shape[0], a.X.Shape[1])) && shaped(a.Hyper, Hypers)
}

func (a *NorMuonArgs) main() Tensor { return a.X }

func (a *NorMuonArgs) work() Work { return Work{Bytes: 2 * size(a.X, a.V)} }

// AdaMuonArgs (Si et al., arXiv 2507.11005): V = β2·V + (1−β2)·X², X = X/(√V+Eps), of equal lengths,
// contiguous. Nothing changes when Hyper says skip.
//
//op:adamuon
type AdaMuonArgs struct {
	X, V       Tensor `dtype:"f32"`
	Hyper      Tensor `dtype:"f32"`
	Beta2, Eps float32
}

func (a *AdaMuonArgs) check() bool {
	return same(a.X, a.V) && a.X.Contiguous() && a.V.Contiguous() && shaped(a.Hyper, Hypers)
}

func (a *AdaMuonArgs) main() Tensor { return a.X }

func (a *AdaMuonArgs) work() Work { return Work{Bytes: 2 * size(a.X, a.V)} }
