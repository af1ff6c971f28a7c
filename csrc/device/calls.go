package device

import (
	"fmt"
	"unsafe"
)

// Each op: check the shapes, enqueue.

func (d *Device) Matmul(a MatmulArgs) {
	m, k := dims(a.A, a.TransA)
	k2, n := dims(a.B, a.TransB)
	need(OpMatmul, a.A.Rank == 2 && a.B.Rank == 2 && k == k2 && shaped(a.C, m, n) && a.A.DType == a.B.DType &&
		optional(a.Bias, n) && (a.Epilogue == NoEpilogue) == !a.Aux.Given() && optional(a.Aux, m, n) &&
		(a.Accumulate == 0 || (!a.Bias.Given() && a.Epilogue == NoEpilogue && (a.C.DType == F32 || a.C.DType == F64))),
		a.C, a.A, a.B, a.Bias, a.Aux)
	d.run(OpMatmul, unsafe.Pointer(&a), a.C)
}

func (d *Device) NormForward(a NormForwardArgs) {
	rows, h := a.X.Rows(), a.X.Last()
	need(OpNormForward, same(a.Y, a.X) && shaped(a.Gamma, h) && optional(a.Beta, h) && shaped(a.Rstd, rows) && optional(a.Mean, rows) &&
		(a.Kind == RMSNormKind || a.Mean.Given()), a.Y, a.X, a.Gamma, a.Beta, a.Mean, a.Rstd)
	d.run(OpNormForward, unsafe.Pointer(&a), a.X)
}

func (d *Device) NormBackward(a NormBackwardArgs) {
	rows, h := a.X.Rows(), a.X.Last()
	need(OpNormBackward, same(a.DX, a.X) && same(a.DY, a.X) && shaped(a.Gamma, h) && shaped(a.DGamma, h) && optional(a.DBeta, h) &&
		shaped(a.Rstd, rows) && optional(a.Mean, rows) && (!a.Residual.Given() || same(a.Residual, a.X)),
		a.DX, a.DY, a.X, a.Gamma, a.DGamma, a.DBeta, a.Rstd, a.Residual)
	d.run(OpNormBackward, unsafe.Pointer(&a), a.X)
}

func (d *Device) ActivationForward(a ActivationForwardArgs) {
	need(OpActivationForward, shaped(a.X, a.Y.Shape[0], width(a.Kind)*a.Y.Last()) && a.Y.Rank == 2, a.Y, a.X)
	d.run(OpActivationForward, unsafe.Pointer(&a), a.X)
}

func (d *Device) ActivationBackward(a ActivationBackwardArgs) {
	need(OpActivationBackward, same(a.DX, a.X) && shaped(a.X, a.DY.Shape[0], width(a.Kind)*a.DY.Last()) && a.DY.Rank == 2, a.DX, a.DY, a.X)
	d.run(OpActivationBackward, unsafe.Pointer(&a), a.X)
}

func (d *Device) Rope(a RopeArgs) {
	need(OpRope, a.X.Rank == 4 && shaped(a.Positions, a.X.Shape[0]) && a.RotDims%2 == 0 && int64(a.RotDims) <= a.X.Last() &&
		a.Cos.Rank == 2 && a.Cos.Last() == int64(a.RotDims)/2 && same(a.Sin, a.Cos), a.X, a.Cos, a.Sin, a.Positions)
	d.run(OpRope, unsafe.Pointer(&a), a.X)
}

func (d *Device) AttentionForward(a AttentionForwardArgs) {
	checkAttention(OpAttentionForward, &a)
	d.run(OpAttentionForward, unsafe.Pointer(&a), a.Q)
}

func (d *Device) AttentionBackward(a AttentionBackwardArgs) {
	f := &a.Forward
	checkAttention(OpAttentionBackward, f)
	need(OpAttentionBackward, same(a.DQ, f.Q) && same(a.DK, f.K) && same(a.DV, f.V) && same(a.DO, f.O), a.DQ, a.DK, a.DV, a.DO, f.Q, f.K)
	d.run(OpAttentionBackward, unsafe.Pointer(&a), f.Q)
}

func checkAttention(op Op, a *AttentionForwardArgs) {
	b := int64(a.Batch)
	ok := b > 0 && a.Q.Rank == 4 && a.K.Rank == 4 && a.Q.Shape[0]%b == 0 && a.K.Shape[0]%b == 0 && same(a.O, a.Q) && same(a.V, a.K) &&
		a.K.Shape[1] == a.Q.Shape[1] && a.K.Shape[2] == 1 && a.K.Last() == a.Q.Last()
	if ok {
		sq, heads := a.Q.Shape[0]/b, a.Q.Shape[1]*a.Q.Shape[2]
		ok = shaped(a.LSE, b, heads, sq) && optional(a.DocStart, b, sq) && optional(a.Slopes, heads) && int64(a.QOffset)+sq <= a.K.Shape[0]/b
	}
	need(op, ok, a.O, a.Q, a.K, a.V, a.LSE, a.DocStart, a.Slopes)
}

func (d *Device) EmbeddingForward(a EmbeddingForwardArgs) {
	need(OpEmbeddingForward, a.Out.Rank == 2 && a.Table.Rank == 2 && shaped(a.IDs, a.Out.Shape[0]) && a.Out.Last() == a.Table.Last(), a.Out, a.Table, a.IDs)
	d.run(OpEmbeddingForward, unsafe.Pointer(&a), a.Out)
}

func (d *Device) EmbeddingBackward(a EmbeddingBackwardArgs) {
	need(OpEmbeddingBackward, a.DOut.Rank == 2 && a.DTable.Rank == 2 && shaped(a.IDs, a.DOut.Shape[0]) && a.DOut.Last() == a.DTable.Last(), a.DOut, a.DTable, a.IDs)
	d.run(OpEmbeddingBackward, unsafe.Pointer(&a), a.DOut)
}

func (d *Device) CrossEntropyStats(a CrossEntropyStatsArgs) {
	rows := a.Logits.Shape[0]
	need(OpCrossEntropyStats, a.Logits.Rank == 2 && shaped(a.Labels, rows) && shaped(a.Max, rows) && shaped(a.Sum, rows) && shaped(a.Target, rows) &&
		a.Columns <= a.Logits.Last(), a.Logits, a.Labels, a.Max)
	d.run(OpCrossEntropyStats, unsafe.Pointer(&a), a.Logits)
}

func (d *Device) CrossEntropyLoss(a CrossEntropyLossArgs) {
	need(OpCrossEntropyLoss, same(a.Max, a.Loss) && same(a.Sum, a.Loss) && same(a.Target, a.Loss), a.Loss, a.Max, a.Sum, a.Target)
	d.run(OpCrossEntropyLoss, unsafe.Pointer(&a), a.Loss)
}

func (d *Device) CrossEntropyGrad(a CrossEntropyGradArgs) {
	rows := a.Logits.Shape[0]
	need(OpCrossEntropyGrad, same(a.D, a.Logits) && shaped(a.Labels, rows) && shaped(a.Max, rows) && shaped(a.Sum, rows) && shaped(a.Weight, rows) &&
		optional(a.Scale, 1) && a.Columns <= a.Logits.Last(), a.D, a.Logits, a.Labels, a.Weight, a.Scale)
	d.run(OpCrossEntropyGrad, unsafe.Pointer(&a), a.Logits)
}

func (d *Device) DropoutAdd(a DropoutAddArgs) {
	need(OpDropoutAdd, a.X.Rank == 2 && same(a.Out, a.X) && optional(a.Bias, a.X.Last()) && (!a.Residual.Given() || same(a.Residual, a.X)) && dropOK(a.Drop, a.X.Shape[0]),
		a.Out, a.X, a.Bias, a.Residual, a.Drop.Samples)
	d.run(OpDropoutAdd, unsafe.Pointer(&a), a.X)
}

func (d *Device) DropoutBackward(a DropoutBackwardArgs) {
	need(OpDropoutBackward, a.DY.Rank == 2 && same(a.DX, a.DY) && dropOK(a.Drop, a.DY.Shape[0]), a.DX, a.DY, a.Drop.Samples)
	d.run(OpDropoutBackward, unsafe.Pointer(&a), a.DY)
}

func (d *Device) ColumnSum(out, x Tensor) {
	a := ColumnSumArgs{out, x}
	need(OpColumnSum, x.Rank == 2 && shaped(out, x.Last()), out, x)
	d.run(OpColumnSum, unsafe.Pointer(&a), x)
}

func (d *Device) Add(out, x, y Tensor) {
	a := AddArgs{out, x, y}
	need(OpAdd, same(out, x) && same(x, y) && out.Contiguous() && x.Contiguous() && y.Contiguous(), out, x, y)
	d.run(OpAdd, unsafe.Pointer(&a), out)
}

func (d *Device) Copy(dst, src Tensor) {
	a := CopyArgs{dst, src}
	need(OpCopy, same(dst, src), dst, src)
	d.run(OpCopy, unsafe.Pointer(&a), dst)
}

func (d *Device) Fill(out Tensor, value float64) {
	a := FillArgs{out, value}
	need(OpFill, out.Contiguous(), out)
	d.run(OpFill, unsafe.Pointer(&a), out)
}

func (d *Device) Uniform(a UniformArgs) {
	need(OpUniform, a.Out.Contiguous() && shaped(a.Step, 1), a.Out, a.Step)
	d.run(OpUniform, unsafe.Pointer(&a), a.Out)
}

func (d *Device) GradStats(out, x Tensor) {
	a := GradStatsArgs{out, x}
	need(OpGradStats, shaped(out, Stats) && x.Contiguous(), out, x)
	d.run(OpGradStats, unsafe.Pointer(&a), x)
}

func (d *Device) WeightedSum(out, x, w Tensor) {
	a := WeightedSumArgs{out, x, w}
	need(OpWeightedSum, shaped(out, 2) && same(x, w) && x.Contiguous() && w.Contiguous(), out, x, w)
	d.run(OpWeightedSum, unsafe.Pointer(&a), x)
}

func (d *Device) GradScale(a GradScaleArgs) {
	need(OpGradScale, shaped(a.Hyper, Hypers) && shaped(a.Stats, Stats), a.Hyper, a.Stats)
	d.run(OpGradScale, unsafe.Pointer(&a), a.Hyper)
}

func (d *Device) AdamW(a AdamWArgs) {
	need(OpAdamW, same(a.Grad, a.Param) && same(a.M, a.Param) && same(a.V, a.Param) && (!a.Model.Given() || same(a.Model, a.Param)) && shaped(a.Hyper, Hypers) &&
		a.Param.Contiguous(), a.Param, a.Grad, a.M, a.V, a.Model, a.Hyper)
	d.run(OpAdamW, unsafe.Pointer(&a), a.Param)
}

func (d *Device) SGD(a SGDArgs) {
	need(OpSGD, same(a.Grad, a.Param) && (!a.Momentum.Given() || same(a.Momentum, a.Param)) && (a.Momentum.Given() || a.Mu == 0) &&
		(!a.Model.Given() || same(a.Model, a.Param)) && shaped(a.Hyper, Hypers) && a.Param.Contiguous(), a.Param, a.Grad, a.Momentum, a.Model, a.Hyper)
	d.run(OpSGD, unsafe.Pointer(&a), a.Param)
}

// dims are rows and columns of a matrix as an operand, transposed where told.
func dims(t Tensor, trans int32) (rows, columns int64) {
	if trans != 0 {
		return t.Shape[1], t.Shape[0]
	}
	return t.Shape[0], t.Shape[1]
}

func width(a Activation) int64 {
	if a.Gated() {
		return 2
	}
	return 1
}

func dropOK(r Dropout, rows int64) bool {
	return r.Rate == 0 || (shaped(r.Step, 1) && r.Samples.Rank == 1 && rows%r.Samples.Len() == 0)
}

func same(a, b Tensor) bool { return a.Rank == b.Rank && a.Shape == b.Shape }

func shaped(t Tensor, shape ...int64) bool {
	if int(t.Rank) != len(shape) {
		return false
	}
	for i, n := range shape {
		if t.Shape[i] != n {
			return false
		}
	}
	return true
}

func optional(t Tensor, shape ...int64) bool { return !t.Given() || shaped(t, shape...) }

func need(op Op, ok bool, ts ...Tensor) {
	if !ok {
		panic(fmt.Sprintf("device: %s called with %v", op, ts))
	}
}
