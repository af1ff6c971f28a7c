package device

import (
	"fmt"
	"unsafe"
)

// Work is what an op has to do at least: operations of its formula, and bytes
// of its operands, each read or written once.
type Work struct{ FLOPs, Bytes float64 }

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

// workOf is the work of op; args points to its argument struct.
func workOf(op Op, args unsafe.Pointer) Work {
	switch op {
	case OpMatmul:
		a := (*MatmulArgs)(args)
		_, k := dims(a.A, a.TransA)
		once := size(a.A, a.B, a.C, a.Aux)
		if a.Accumulate != 0 {
			once += size(a.C)
		}
		return Work{2 * float64(a.C.Len()) * float64(k), once}
	case OpAttentionForward:
		a := (*AttentionForwardArgs)(args)
		return Work{4 * a.scores(), size(a.Q, a.K, a.V, a.O)}
	case OpAttentionBackward:
		a := (*AttentionBackwardArgs)(args)
		f := &a.Forward
		return Work{10 * f.scores(), size(f.Q, f.K, f.V, f.O, a.DO, a.DQ, a.DK, a.DV)}
	}
	return Work{Bytes: streamed(op, args)}
}

// scores is half the square of scores (what a causal mask leaves) times the
// channels: one product of attention in multiply-adds.
func (a *AttentionForwardArgs) scores() float64 {
	keys := float64(a.K.Shape[0]) / float64(max(1, a.Batch))
	queries := float64(a.Q.Shape[0]) / float64(max(1, a.Batch))
	seen := keys - queries/2 // on average, the last query sees all keys
	return float64(a.Q.Len()) * seen
}

// streamed is the bytes of the ops that do little else than move them.
func streamed(op Op, args unsafe.Pointer) float64 {
	switch op {
	case OpNormForward:
		a := (*NormForwardArgs)(args)
		return size(a.X, a.Y)
	case OpNormBackward:
		a := (*NormBackwardArgs)(args)
		return size(a.DX, a.DY, a.X, a.Residual)
	case OpActivationForward:
		a := (*ActivationForwardArgs)(args)
		return size(a.X, a.Y)
	case OpActivationBackward:
		a := (*ActivationBackwardArgs)(args)
		return size(a.DX, a.DY, a.X)
	case OpRope:
		a := (*RopeArgs)(args)
		return 2 * size(a.X)
	case OpEmbeddingForward:
		a := (*EmbeddingForwardArgs)(args)
		return 2 * size(a.Out)
	case OpEmbeddingBackward:
		a := (*EmbeddingBackwardArgs)(args)
		return size(a.DOut) + 8*float64(a.DOut.Len())
	case OpCrossEntropyStats:
		a := (*CrossEntropyStatsArgs)(args)
		return size(a.Logits)
	case OpCrossEntropyLoss:
		a := (*CrossEntropyLossArgs)(args)
		return 4 * size(a.Loss)
	case OpCrossEntropyGrad:
		a := (*CrossEntropyGradArgs)(args)
		return size(a.D, a.Logits)
	case OpDropoutAdd:
		a := (*DropoutAddArgs)(args)
		return size(a.Out, a.X, a.Residual)
	case OpDropoutBackward:
		a := (*DropoutBackwardArgs)(args)
		return size(a.DX, a.DY)
	}
	return streamedPlain(op, args)
}

func streamedPlain(op Op, args unsafe.Pointer) float64 {
	switch op {
	case OpColumnSum:
		return size((*ColumnSumArgs)(args).X)
	case OpAdd:
		a := (*AddArgs)(args)
		return size(a.Out, a.A, a.B)
	case OpCopy:
		a := (*CopyArgs)(args)
		return size(a.Dst, a.Src)
	case OpFill:
		return size((*FillArgs)(args).Out)
	case OpUniform:
		return size((*UniformArgs)(args).Out)
	case OpGradStats:
		return size((*GradStatsArgs)(args).X)
	case OpWeightedSum:
		a := (*WeightedSumArgs)(args)
		return size(a.X, a.W)
	case OpAdamW:
		a := (*AdamWArgs)(args)
		return 2*size(a.Param, a.M, a.V) + size(a.Grad, a.Model)
	case OpSGD:
		a := (*SGDArgs)(args)
		return 2*size(a.Param, a.Momentum) + size(a.Grad, a.Model)
	}
	return 0
}

// size is the bytes of tensors; those not given count nothing.
func size(ts ...Tensor) (bytes float64) {
	for _, t := range ts {
		if t.Given() {
			bytes += float64(t.Bytes())
		}
	}
	return bytes
}
