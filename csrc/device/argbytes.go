package device

import "unsafe"

// argBytes are the sizes of the ops' argument structs.
var argBytes = [Ops]uintptr{
	OpMatmul: unsafe.Sizeof(MatmulArgs{}), OpNormForward: unsafe.Sizeof(NormForwardArgs{}), OpNormBackward: unsafe.Sizeof(NormBackwardArgs{}),
	OpActivationForward: unsafe.Sizeof(ActivationForwardArgs{}), OpActivationBackward: unsafe.Sizeof(ActivationBackwardArgs{}), OpRope: unsafe.Sizeof(RopeArgs{}),
	OpAttentionForward: unsafe.Sizeof(AttentionForwardArgs{}), OpAttentionBackward: unsafe.Sizeof(AttentionBackwardArgs{}),
	OpEmbeddingForward: unsafe.Sizeof(EmbeddingForwardArgs{}), OpEmbeddingBackward: unsafe.Sizeof(EmbeddingBackwardArgs{}),
	OpCrossEntropyStats: unsafe.Sizeof(CrossEntropyStatsArgs{}), OpCrossEntropyLoss: unsafe.Sizeof(CrossEntropyLossArgs{}),
	OpCrossEntropyGrad: unsafe.Sizeof(CrossEntropyGradArgs{}), OpDropoutAdd: unsafe.Sizeof(DropoutAddArgs{}), OpDropoutBackward: unsafe.Sizeof(DropoutBackwardArgs{}),
	OpColumnSum: unsafe.Sizeof(ColumnSumArgs{}), OpAdd: unsafe.Sizeof(AddArgs{}), OpCopy: unsafe.Sizeof(CopyArgs{}), OpFill: unsafe.Sizeof(FillArgs{}),
	OpUniform: unsafe.Sizeof(UniformArgs{}), OpGradStats: unsafe.Sizeof(GradStatsArgs{}), OpWeightedSum: unsafe.Sizeof(WeightedSumArgs{}),
	OpGradScale: unsafe.Sizeof(GradScaleArgs{}), OpAdamW: unsafe.Sizeof(AdamWArgs{}), OpSGD: unsafe.Sizeof(SGDArgs{}),
}

// ArgBytes is the size of the op's argument struct.
func (op Op) ArgBytes() int64 { return int64(argBytes[op]) }
