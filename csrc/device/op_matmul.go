package device

import "fmt"

// Epilogue is what follows a matmul.
type Epilogue int32

const (
	NoEpilogue       Epilogue = iota // C = AB (+ bias where given)
	GeluTanhEpilogue                 // Aux = AB + bias, C = gelu(Aux)
	GeluErfEpilogue
)

// MatmulArgs: C = op(A)·op(B) + bias, then the epilogue; with Accumulate
// C += op(A)·op(B) (no bias, no epilogue; C f32: main gradients).
// op(A) [m,k], op(B) [k,n], both of one value dtype; C [m,n] of that dtype or
// f32; Bias [n] and Aux [m,n] of the value dtype of A. Sums in f32.
//
// ByRow (B stored [n,k], no Accumulate): a row of C depends on its row of A alone, not
// on how many there are; otherwise other shapes may take other kernels.
//
// Leaves > 0: every element is Σ over k in an order that depends on k, Leaves and Stretches
// alone, whatever m and n are. k is Stretches equal stretches, each cut into Leaves equal parts;
// leaf l is the l-th part of each of them, summed in f32 in rising order, and the leaves are
// added as a balanced binary tree in f32. Leaves is a power of two, no Accumulate.
//
// Grid given: C f64 is the Sum of a GridAdd of each leaf of op(A)·op(B), with its Grid and Peak.
// k is rows of samples, i·Batch+j the i-th of sample j; a leaf is Chunk rows of one sample, summed
// in f32 in rising order. TransA and Accumulate.
//
//op:matmul
type MatmulArgs struct {
	C          Tensor `dtype:"value|f32|f64"`
	A, B       Tensor `dtype:"value"`
	Bias, Aux  Tensor `dtype:"value"`
	Grid       Tensor `dtype:"f64"`
	Peak       Tensor `dtype:"f32"`
	TransA     int32  // A is stored [k,m]
	TransB     int32  // B is stored [n,k]
	Accumulate int32
	Epilogue   Epilogue
	ByRow      int32
	Leaves     int32
	Stretches  int32 // 0: one
	Chunk      int32
	Batch      int32
	_          int32
}

func (a *MatmulArgs) check() bool {
	if a.A.Rank != 2 || a.B.Rank != 2 {
		return false
	}
	m, k := dims(a.A, a.TransA)
	k2, n := dims(a.B, a.TransB)
	plain := !a.Bias.Given() && a.Epilogue == NoEpilogue && (a.C.DType == F32 || a.C.DType == F64)
	return k == k2 && shaped(a.C, m, n) && optional(a.Bias, n) && optional(a.Aux, m, n) &&
		(a.C.DType != F64 || a.A.DType == F64 || a.Grid.Given()) && (a.Epilogue == NoEpilogue) == !a.Aux.Given() && (a.Accumulate == 0 || plain) &&
		(a.ByRow == 0 || a.TransA == 0 && a.TransB != 0 && a.Accumulate == 0) && a.leaves(k)
}

// leaves reports whether the sums over k can be cut as asked.
func (a *MatmulArgs) leaves(k int64) bool {
	if a.Grid.Given() {
		return a.Leaves == 0 && a.TransA != 0 && a.TransB == 0 && a.Accumulate != 0 && a.C.DType == F64 && shaped(a.Grid, 1) && shaped(a.Peak, 1) &&
			a.Chunk > 0 && a.Batch > 0 && k%int64(a.Chunk*a.Batch) == 0
	}
	return (a.Leaves == 0 || a.Accumulate == 0) && leavesFit(a.Leaves, a.Stretches, k)
}

// leavesFit reports whether so many leaves of so many stretches can be cut out of k.
func leavesFit(leaves, stretches int32, k int64) bool {
	if leaves == 0 {
		return stretches == 0
	}
	return leaves > 0 && leaves&(leaves-1) == 0 && stretches >= 0 && k%int64(leaves*max(1, stretches)) == 0
}

func (a *MatmulArgs) main() Tensor { return a.C }

func (a *MatmulArgs) work() Work {
	_, k := dims(a.A, a.TransA)
	once := size(a.A, a.B, a.C, a.Aux)
	if a.Accumulate != 0 {
		once += size(a.C)
	}
	return Work{2 * float64(a.C.Len()) * float64(k), once}
}

// describe names a product by its sizes: m x n x k, with t for an operand
// that is stored transposed, += for accumulation.
func (a *MatmulArgs) describe() string {
	m, k := dims(a.A, a.TransA)
	how := [2]byte{'n', 'n'}
	for i, trans := range []int32{a.TransA, a.TransB} {
		if trans != 0 {
			how[i] = 't'
		}
	}
	text := fmt.Sprintf("%s %dx%dx%d %s", a.A.DType, m, a.C.Last(), k, how[:])
	if a.Accumulate != 0 {
		text += " +="
	}
	return text
}

// dims are rows and columns of a matrix as an operand, transposed where trans is set.
func dims(t Tensor, trans int32) (rows, columns int64) {
	if trans != 0 {
		return t.Shape[1], t.Shape[0]
	}
	return t.Shape[0], t.Shape[1]
}
