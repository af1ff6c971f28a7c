package device

// RoundNVFP4Args: Out is X [m,n] as NVFP4 keeps it, numbers of 4 bits (E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6) with a scale
// in E4M3 for each block of Rows x Columns from X's first element on, and one in f32 for the tensor (Transformer
// Engine's NVFP4BlockScaling, without its transforms and random rounding). In f32, every step rounded: with
// S = 2688 / Most, at most the largest f32, a block's scale b is its largest |X| times (S · 1/6) in E4M3; X times
// 1 / (b · (1/S)), at most the largest f32, is rounded to E2M1, half to even, and Out = that · ((b · Most) · 1/2688).
// Both formats saturate. Most f32 [1] is MaxAbs's of X; where it is 0 or not finite Out = X. X has a value dtype, Out
// the same or f32; both have adjacent elements in a row; Columns is at most 1024.
//
//op:round_nvfp4
type RoundNVFP4Args struct {
	Out           Tensor `dtype:"value|f32"`
	X             Tensor `dtype:"value"`
	Most          Tensor `dtype:"f32"`
	Rows, Columns int32
}

func (a *RoundNVFP4Args) check() bool {
	return a.X.Rank == 2 && same(a.Out, a.X) && shaped(a.Most, 1) && blocked(a.Rows, a.Columns)
}

func (a *RoundNVFP4Args) main() Tensor { return a.Out }

func (a *RoundNVFP4Args) work() Work { return streamed(a.Out, a.X) }
