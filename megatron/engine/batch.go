package engine

import (
	"math"
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/schedule"
	"monotron/mpu"
)

// Micro is one micro-batch on the host: b samples of s positions each.
type Micro struct {
	Tokens, Labels [][]int32   // [b][s]
	LossMask       [][]float32 // [b][s]
	PositionIDs    [][]int32   // [b][s]
	DocStart       [][]int32   // [b][s]: first position each query sees; nil: all from 0
	Samples        []int32     // [b]: number of each sample in the global batch
	// Of an Objective: number of each sample, of b/len(Rows) sequences each; -1: it does not count.
	Rows []int64 `json:",omitempty"`
}

// counted is the sum of a loss mask [b][s] that a micro-batch's mean is over: of all positions,
// or with --loss-mean-per-context-rank of those that this rank has.
func (e *Engine) counted(mask [][]float32, here mpu.Positions) (sum float64) {
	if e.config.LossMeanPerContextRank {
		mask = [][]float32{mpu.Flatten(here, mask)}
	}
	for _, row := range mask {
		for _, v := range row {
			sum += float64(v)
		}
	}
	return sum
}

// means is how many ranks have a mean of each of their micro-batches, which are averaged.
func (e *Engine) means() int {
	if e.config.LossMeanPerContextRank {
		return e.rank.Sizes.DP * e.rank.Sizes.CP
	}
	return e.rank.Sizes.DP
}

// documents are what ranks that share samples cut, where it is not the samples.
func (e *Engine) documents(m *Micro) mpu.Positions {
	if !e.config.Layout.ZigZagPerDocument || m.DocStart == nil {
		return nil
	}
	return mpu.Documents(firstSeen(m.DocStart))
}

// Positions are those of a micro-batch's samples that this rank has.
func (e *Engine) Positions(m *Micro) mpu.Positions {
	documents := e.documents(m)
	if documents == nil {
		documents = mpu.AllPositions(int64(len(m.Tokens[0])))
	}
	return documents.ZigZag(e.rank.Coordinates.CP, e.rank.Sizes.CP)
}

// firstSeen is, by position, the first one that a query of any sample sees there.
func firstSeen(starts [][]int32) []int32 {
	all := slices.Clone(starts[0])
	for _, row := range starts[1:] {
		for i, at := range row {
			all[i] = min(all[i], at)
		}
	}
	return all
}

func samples(micros []*Micro) (n int) {
	for _, m := range micros {
		if m.Rows != nil {
			n += len(m.Rows)
		} else {
			n += len(m.Tokens)
		}
	}
	return n
}

// load copies what a stage needs of a micro-batch to the device, of context-parallel ranks this one's
// positions, and describes it to the layers; train: what dropout and backward need too. The weight of a token
// in the total loss is mask·tokenWeight; the last stage gets the mask, f32 [tokens]. micros: how many a rank
// has in this step.
func (e *Engine) load(s allocator, m *Micro, part schedule.Part, micros int, train bool) (p *model.Pass, mask device.Tensor) {
	// b samples of `all` positions; here: this context-parallel rank's, in rows s·b.
	b, all := int64(len(m.Tokens)), int64(len(m.Tokens[0]))
	here := e.Positions(m)
	p = &model.Pass{D: e.device, DType: e.DType, Positions: here, Batch: b, Seed: uint64(e.config.Seed), Documents: e.documents(m)}
	p.PositionIDs = put(e.device, s, device.I32, mpu.Flatten(here, m.PositionIDs))
	// Packed documents: the first position that each token sees [b, all].
	if m.DocStart != nil {
		p.DocStart, p.FirstSeen = put(e.device, s, device.I32, joined(m.DocStart)).Reshape(b, all), firstSeen(m.DocStart)
	}
	if e.config.AsGenerated {
		p.AsGenerated = e.placed(s, b, all)
	}
	// Dropout is keyed by step and sample, so that it does not depend on the layout.
	if train {
		p.Grad, p.LossScale, p.Auxiliary = true, e.scale, e.auxiliary
		p.Step, p.Samples, p.Counted = e.iteration, put(e.device, s, device.I32, m.Samples), e.routerWeight(m)
	}
	// The first stage embeds ids.
	if part.Embedding {
		p.IDs = put(e.device, s, device.I32, mpu.Flatten(here, m.Tokens))
	}
	// The last stage has labels and the loss.
	if !part.Head {
		return p, mask
	}
	p.Choices = e.Accuracy && !train
	p.Labels = put(e.device, s, device.I32, mpu.Flatten(here, m.Labels))
	counts := mpu.Flatten(here, m.LossMask)
	mask = put(e.device, s, device.F32, counts)
	p.Weight = put(e.device, s, device.F32, times(counts, e.tokenWeight(m, here, micros)))
	// The head's gradients are computed while its logits exist.
	if train {
		p.Ahead = e.loadAhead(s, m, here, micros)
	}
	return p, mask
}

// placed are the rows of b sequences of n positions as generation has them: row r is position r/b of
// sequence r mod b, and every sequence has blocks of its own.
func (e *Engine) placed(s allocator, b, n int64) *model.Placed {
	each := (n + device.PagedBlock - 1) / device.PagedBlock
	tables, rows := make([]int32, 0, b*each), make([]int32, 0, 2*b*n)
	for i := range b * each {
		tables = append(tables, int32(i))
	}
	for r := range b * n {
		rows = append(rows, int32(r%b), int32(r/b))
	}
	return &model.Placed{Blocks: b * each, Tables: put(e.device, s, device.I32, tables).Reshape(b, each), Rows: put(e.device, s, device.I32, rows).Reshape(b*n, 2)}
}

// tokenWeight: by default a step's gradient is the mean over micro-batches of
// each one's mean over its counted tokens; per token, the sum (divided by all
// tokens in the update). The micro-batches are those of all ranks, so that what
// flows backward is as large under every layout, and fp16 overflows under all of
// them or none. Ranks that share sequences divide by the tokens of all of them; Megatron
// takes each one's mean (--loss-mean-per-context-rank), so that its gradient depends on where masked tokens lie.
func (e *Engine) tokenWeight(m *Micro, here mpu.Positions, micros int) float64 {
	if e.config.CalculatePerTokenLoss {
		return 1
	}
	return 1 / math.Max(1, e.counted(m.LossMask, here)) / float64(micros*e.means())
}

// routerWeight is the number of tokens that a micro-batch's losses of routers are multiplied by where the step's
// gradient is divided by all counted ones. In pretraining it is of all tokens, as in Megatron-LM. A tuning has few
// that count among prompts and padding, so it is of those: together the losses weigh as their coefficients say.
func (e *Engine) routerWeight(m *Micro) (n float64) {
	if !e.config.RouterLossByLearned {
		return float64(len(m.Tokens) * len(m.Tokens[0]))
	}
	for _, row := range m.LossMask {
		for _, v := range row {
			n += float64(v)
		}
	}
	return n
}

// gradFactor is what the main gradients were multiplied by.
func (e *Engine) gradFactor(r *Result) float64 {
	if e.config.CalculatePerTokenLoss {
		return r.Scale * math.Max(1, r.Tokens)
	}
	return r.Scale
}

// allocator gives memory for the numbers of a micro-batch: new tensors of a scope, or, for a
// graph, the same ones each time.
type allocator interface {
	Alloc(dtype device.DType, shape ...int64) device.Tensor
}

// inputs are tensors of a scope that are given out again, in the same order, after rewind.
type inputs struct {
	scope *device.Scope
	given []device.Tensor
	next  int
}

func (in *inputs) rewind() *inputs {
	in.next = 0
	return in
}

// Alloc is called with the same arguments in every round.
func (in *inputs) Alloc(dtype device.DType, shape ...int64) device.Tensor {
	if in.next == len(in.given) {
		in.given = append(in.given, in.scope.Alloc(dtype, shape...))
	}
	in.next++
	return in.given[in.next-1]
}

func put[T any](d *device.Device, s allocator, dtype device.DType, host []T) device.Tensor {
	t := s.Alloc(dtype, int64(len(host)))
	device.WriteSlice(d, t, host)
	return t
}

func joined[T any](rows [][]T) []T {
	var out []T
	for _, row := range rows {
		out = append(out, row...)
	}
	return out
}
