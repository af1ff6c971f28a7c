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
// token order.
//
//op:embedding_backward
type EmbeddingBackwardArgs struct {
	DTable Tensor `dtype:"f32"`
	DOut   Tensor `dtype:"value"`
	IDs    Tensor `dtype:"i32"`
	Start  int64
}

func (a *EmbeddingBackwardArgs) check() bool {
	return a.DOut.Rank == 2 && a.DTable.Rank == 2 && shaped(a.IDs, a.DOut.Shape[0]) && a.DOut.Last() == a.DTable.Last()
}

func (a *EmbeddingBackwardArgs) main() Tensor { return a.DOut }

func (a *EmbeddingBackwardArgs) work() Work {
	return Work{Bytes: size(a.DOut) + 8*float64(a.DOut.Len())}
}
