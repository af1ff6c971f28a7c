package device

// Formats of 8 bits (OCP 8-bit Floating Point Specification): E4M3 reaches 448, E5M2 57,344.
const (
	E4M3 = iota
	E5M2
)

// ScaleRule is how the scale of a block follows from its largest magnitude.
type ScaleRule int32

// ScaleBelow is the largest power of two with which no magnitude is above the format's largest number, that divided by
// the largest magnitude in f32 and rounded down (Transformer Engine's Float8BlockScaling). ScaleE8M0 is 1 / 2^e, e being
// the least of -127..127 with 2^e not below the largest magnitude times 1/(the format's largest number), both in f32
// (Transformer Engine's MXFP8BlockScaling; the OCP Microscaling Formats Specification has the scale's numbers, E8M0).
const (
	ScaleBelow ScaleRule = iota
	ScaleE8M0
)

// RoundFP8Args: Out is X [m,n] as numbers of 8 bits keep it, blocks of Rows x Columns from its first element
// on having a scale each, a power of two by Rule: X·scale is rounded to the format, half to even, and Out =
// that / scale. A block of zeros and one with a number that is not finite stay as they are. Out and X have
// one value dtype and adjacent elements in a row; Columns is at most 1024, Format E4M3 or E5M2.
//
//op:round_fp8
type RoundFP8Args struct {
	Out, X        Tensor `dtype:"value"`
	Rows, Columns int32
	Format        int32
	Rule          ScaleRule
}

func (a *RoundFP8Args) check() bool {
	return a.X.Rank == 2 && same(a.Out, a.X) && blocked(a.Rows, a.Columns) && isFP8(a.Format) && (a.Rule == ScaleBelow || a.Rule == ScaleE8M0)
}

func (a *RoundFP8Args) main() Tensor { return a.Out }

func (a *RoundFP8Args) work() Work { return streamed(a.Out, a.X) }

// blocked reports whether blocks have such sides: the scales of a row of blocks lie in an array of that size.
func blocked(rows, columns int32) bool { return rows > 0 && columns > 0 && columns <= 1024 }

func isFP8(format int32) bool { return format == E4M3 || format == E5M2 }

// MaxAbsArgs: each of Most f32 [groups] becomes the larger of itself, which is not negative, and the largest |X| of the
// rows of X [m,n] from its offset to the next of Offsets i32 [groups+1]; without offsets of all rows, groups being 1.
// Rows have adjacent elements. It is infinite where they have a number that is not finite.
//
//op:max_abs
type MaxAbsArgs struct {
	Most    Tensor `dtype:"f32"`
	X       Tensor `dtype:"value"`
	Offsets Tensor `dtype:"i32"`
}

func (a *MaxAbsArgs) check() bool { return a.X.Rank == 2 && perGroup(a.Most, a.Offsets) }

func (a *MaxAbsArgs) main() Tensor { return a.X }

func (a *MaxAbsArgs) work() Work { return streamed(a.X) }

// perGroup reports whether t has a number for each group of rows, without offsets for all of them.
func perGroup(t, offsets Tensor) bool {
	if !offsets.Given() {
		return shaped(t, 1)
	}
	return t.Rank == 1 && shaped(offsets, t.Shape[0]+1)
}

// RoundTensorFP8Args: Out is X [m,n] as numbers of 8 bits with one scale keep it, or with Offsets one for each group
// of rows as MaxAbs has them: X·scale in f32, at most the format's largest number, is rounded to the format, half to
// even, and Out = that · (1/scale), both in f32. Scale f32 [groups] has the scales (Transformer Engine's
// DelayedScaling); a number that is not finite stays. Or Most f32 [groups], MaxAbs's, has them (its
// Float8CurrentScaling): scale = the format's largest number / Most in f32, at most the largest f32; where Most is 0 or
// not finite Out = X. X has a value dtype, Out the same or f32.
//
//op:round_tensor_fp8
type RoundTensorFP8Args struct {
	Out         Tensor `dtype:"value|f32"`
	X           Tensor `dtype:"value"`
	Most, Scale Tensor `dtype:"f32"`
	Offsets     Tensor `dtype:"i32"`
	Format      int32
	_           int32
}

func (a *RoundTensorFP8Args) check() bool {
	by := a.Most
	if !by.Given() {
		by = a.Scale
	}
	return a.X.Rank == 2 && same(a.Out, a.X) && a.Most.Given() != a.Scale.Given() && perGroup(by, a.Offsets) && isFP8(a.Format)
}

func (a *RoundTensorFP8Args) main() Tensor { return a.Out }

func (a *RoundTensorFP8Args) work() Work { return streamed(a.Out, a.X) }
