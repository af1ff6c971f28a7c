package device

// Formats of 8 bits (OCP 8-bit Floating Point Specification): E4M3 reaches 448, E5M2 57,344.
const (
	E4M3 = iota
	E5M2
)

// RoundFP8Args: Out is X [m,n] as numbers of 8 bits keep it, blocks of Rows x Columns from its first element
// on having a scale each: the scale is the largest power of two with which no magnitude of the block is above
// the format's largest number, X·scale is rounded to the format, half to even, and Out = that / scale. A
// block of zeros and one with a number that is not finite stay as they are. Out and X have one value dtype
// and adjacent elements in a row; Columns is at most 1024, Format E4M3 or E5M2.
//
//op:round_fp8
type RoundFP8Args struct {
	Out, X        Tensor `dtype:"value"`
	Rows, Columns int32
	Format        int32
	_             int32
}

func (a *RoundFP8Args) check() bool {
	return a.X.Rank == 2 && same(a.Out, a.X) && a.Rows > 0 && a.Columns > 0 && a.Columns <= 1024 && (a.Format == E4M3 || a.Format == E5M2)
}

func (a *RoundFP8Args) main() Tensor { return a.Out }

func (a *RoundFP8Args) work() Work { return streamed(a.Out, a.X) }
