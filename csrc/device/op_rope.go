package device

// RopeArgs rotates X [tokens, groups, heads per group, d] in place by the
// angles of Positions i32 [tokens]: Cos, Sin f32 [positions, RotDims/2].
// Pairs are (i, i+RotDims/2), interleaved (2i, 2i+1); channels from RotDims on
// pass. Inverse rotates back, which is the gradient.
//
//op:rope
type RopeArgs struct {
	X           Tensor `dtype:"value"`
	Cos, Sin    Tensor `dtype:"f32"`
	Positions   Tensor `dtype:"i32"`
	RotDims     int32
	Interleaved int32
	Inverse     int32
	_           int32
}

func (a *RopeArgs) check() bool {
	return a.X.Rank == 4 && shaped(a.Positions, a.X.Shape[0]) && a.RotDims%2 == 0 && int64(a.RotDims) <= a.X.Last() &&
		a.Cos.Rank == 2 && a.Cos.Last() == int64(a.RotDims)/2 && same(a.Sin, a.Cos)
}

func (a *RopeArgs) main() Tensor { return a.X }

func (a *RopeArgs) work() Work { return streamed(a.X, a.X) }
