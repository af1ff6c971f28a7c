package device

// EmbeddingForwardArgs: Out [tokens,h] (+)= Table[IDs−Start], zero for ids
// outside the table (another rank's rows). IDs i32 [tokens].
//
//op:embedding_forward
type EmbeddingForwardArgs struct {
	Out, Table Tensor `dtype:"value"`
	IDs        Tensor `dtype:"i32"`
	Start      int64
	Accumulate int32
	_          int32
}

func (a *EmbeddingForwardArgs) check() bool {
	return a.Out.Rank == 2 && a.Table.Rank == 2 && shaped(a.IDs, a.Out.Shape[0]) && a.Out.Last() == a.Table.Last()
}

func (a *EmbeddingForwardArgs) main() Tensor { return a.Out }

func (a *EmbeddingForwardArgs) work() Work { return streamed(a.Out, a.Out) }

// EmbeddingBackwardArgs: DTable f32 [rows,h] [IDs−Start] += DOut, summed in
// token order. A DTable of f64 is the Sum of a GridAdd of each row of DOut, with its Grid and
// Peak; Peak counts the rows that are in the table.
//
//op:embedding_backward
type EmbeddingBackwardArgs struct {
	DTable Tensor `dtype:"f32|f64"`
	DOut   Tensor `dtype:"value"`
	IDs    Tensor `dtype:"i32"`
	Grid   Tensor `dtype:"f64"`
	Peak   Tensor `dtype:"f32"`
	Start  int64
}

func (a *EmbeddingBackwardArgs) check() bool {
	return a.DOut.Rank == 2 && a.DTable.Rank == 2 && shaped(a.IDs, a.DOut.Shape[0]) && a.DOut.Last() == a.DTable.Last() &&
		optional(a.Grid, 1) && optional(a.Peak, 1) && a.Grid.Given() == a.Peak.Given() && (!a.Grid.Given() || a.DTable.DType == F64)
}

func (a *EmbeddingBackwardArgs) main() Tensor { return a.DOut }

func (a *EmbeddingBackwardArgs) work() Work {
	return Work{Bytes: size(a.DOut) + 8*float64(a.DOut.Len())}
}
