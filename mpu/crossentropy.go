package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// VocabParallelHead is the output layer joined with its cross entropy. Logits
// exist for HeadRows tokens at a time, and their gradient is made and used while
// they do: nothing of size tokens x vocabulary is kept.
type VocabParallelHead struct {
	Weight  *Param
	Start   int64 // first vocabulary row here
	Columns int64 // rows here that count in the softmax
	tp      comm.Group
}

// HeadRows is how many tokens' logits exist at once. The head's products stream
// the whole table, so more rows a pass mean less traffic: on AMX they are a fifth
// faster with 1024 than with 512.
const HeadRows = 1024

// NewVocabParallelHead joins weight (the word embedding's table where tied). kept
// columns of the whole vocabulary count in the softmax; the rest is padding.
func NewVocabParallelHead(tp comm.Group, weight *Param, start, kept int64) *VocabParallelHead {
	return &VocabParallelHead{Weight: weight, Start: start, Columns: max(0, min(weight.Shape[0], kept-start)), tp: tp}
}

// LossArgs is one call of Loss.
type LossArgs struct {
	Hidden Tensor // [tokens, h], after the final norm
	Labels Tensor // i32 [tokens]
	Loss   Tensor // f32 [tokens]: each token's loss, out
	// Where DHidden is given, the gradient is made in the same pass:
	DHidden Tensor // [tokens, h], out
	Weight  Tensor // f32 [tokens]: d(total loss)/d(token loss)
	Scale   Tensor // f32 [1]: loss scale; none: 1
}

// Tensor shortens the signatures above.
type Tensor = device.Tensor

// Loss computes the tokens' losses and, where asked, dHidden and the weight's gradient.
func (l *VocabParallelHead) Loss(d *device.Device, a LossArgs) error {
	tokens := a.Hidden.Shape[0]
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	chunk := min(HeadRows, tokens)
	logits := s.Alloc(logitsType(a.Hidden.DType), chunk, l.Weight.Shape[0])
	grad := logits // of the logits; in place where the dtypes agree
	if a.DHidden.Given() && a.Hidden.DType != logits.DType {
		grad = s.Alloc(a.Hidden.DType, chunk, l.Weight.Shape[0])
	}
	stats := [3]Tensor{s.Alloc(logits.DType, chunk), s.Alloc(logits.DType, chunk), s.Alloc(logits.DType, chunk)}
	for at := int64(0); at < tokens; at += chunk {
		n := min(chunk, tokens-at)
		cut := func(t Tensor) Tensor { return t.Slice(0, at, n) }
		top := func(t Tensor) Tensor { return t.Slice(0, 0, n) }
		c := chunkArgs{
			hidden: cut(a.Hidden), labels: cut(a.Labels), loss: cut(a.Loss), logits: top(logits), grad: top(grad),
			max: top(stats[0]), sum: top(stats[1]), target: top(stats[2]), scale: a.Scale,
		}
		if a.DHidden.Given() {
			c.dhidden, c.weight = cut(a.DHidden), cut(a.Weight)
		}
		if err := l.chunk(d, c); err != nil {
			return err
		}
	}
	return nil
}

type chunkArgs struct {
	hidden, labels, loss, logits, grad Tensor
	max, sum, target                   Tensor
	dhidden, weight, scale             Tensor
}

func (l *VocabParallelHead) chunk(d *device.Device, c chunkArgs) error {
	d.Matmul(device.MatmulArgs{C: c.logits, A: c.hidden, B: l.Weight.Value, TransB: 1})
	d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: c.logits, Labels: c.labels, Max: c.max, Sum: c.sum, Target: c.target, Start: l.Start, Columns: l.Columns})
	d.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: c.loss, Max: c.max, Sum: c.sum, Target: c.target})
	if !c.dhidden.Given() {
		return nil
	}
	d.CrossEntropyGrad(device.CrossEntropyGradArgs{D: c.grad, Logits: c.logits, Labels: c.labels, Max: c.max, Sum: c.sum,
		Weight: c.weight, Scale: c.scale, Start: l.Start, Columns: l.Columns})
	d.Matmul(device.MatmulArgs{C: c.dhidden, A: c.grad, B: l.Weight.Value})
	d.Matmul(device.MatmulArgs{C: l.Weight.Grad, A: c.grad, B: c.hidden, TransA: 1, Accumulate: 1})
	return CopyToRegionBackward(l.tp, c.dhidden)
}

// Logits [tokens, columns here] of hidden, for generation; columns of padding are not included.
func (l *VocabParallelHead) Logits(d *device.Device, out, hidden Tensor) {
	d.Matmul(device.MatmulArgs{C: out, A: hidden, B: l.Weight.Value.Slice(0, 0, l.Columns), TransB: 1})
}

// logitsType: the softmax works on f32 logits whatever the values are.
func logitsType(value device.DType) device.DType {
	if value == device.F64 {
		return device.F64
	}
	return device.F32
}
