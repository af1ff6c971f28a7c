package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// VocabParallelHead is the output layer joined with its cross entropy. Logits
// exist for HeadRows(device) tokens at a time, and their gradient is made and used while
// they do: nothing of size tokens x vocabulary is kept. Each rank has the columns
// of its rows of the table.
type VocabParallelHead struct {
	Weight  *Param
	Start   int64   // first vocabulary row here
	Columns int64   // rows here that count in the softmax
	Cap     float32 // logits are Cap·tanh(logit/Cap); 0: as they are
	region  Region
	adapter *adapter // nil: none
}

// HeadRows is how many tokens' logits exist at once. The head's products stream the complete
// table, and the gradient of its weight in f32, so more rows a pass mean less traffic: on AMX
// they are a fifth faster with 1024 than with 512; a GPU, which computes far more in the time
// of a byte, has 8192.
func HeadRows(d *device.Device) int64 {
	if d.IsGPU() {
		return 8192
	}
	return 1024
}

// NewVocabParallelHead joins weight (the word embedding's table where tied). kept
// columns of the uncut vocabulary count in the softmax; the rest is padding.
func NewVocabParallelHead(r Region, weight *Param, start, kept int64) *VocabParallelHead {
	return &VocabParallelHead{Weight: weight, Start: start, Columns: max(0, min(weight.Shape[0], kept-start)), region: r}
}

// Adapt gives the output layer branches; before its parameters get memory.
func (l *VocabParallelHead) Adapt(branches []Branch) {
	l.adapter = newAdapter(l.region, branches, []part{{weight: l.Weight, n: l.Weight.Shape[0]}}, false)
	// B and M have no rows for the padding of the table, which the last ranks hold.
	for _, b := range l.adapter.list {
		for _, p := range b.pieces {
			for _, q := range given(p.b, p.m) {
				q.Uneven = b.Out < l.Weight.Shape[0]*int64(l.region.Size())
			}
		}
	}
}

// AdapterParams lists A and B of the branches. The table is not the head's own.
func (l *VocabParallelHead) AdapterParams() []*Param { return l.adapter.params() }

// LossArgs is one call of Loss.
type LossArgs struct {
	Hidden Tensor // [tokens, h], after the final norm; the rank's rows under sequence parallelism
	Labels Tensor // i32 [tokens]
	Loss   Tensor // f32 [tokens]: each token's loss, out, the same on every rank
	// Where they are given, f32 [tokens], out: the largest logit and the label's, of all ranks' columns.
	Best, Target Tensor
	// Where DHidden is given, the gradient is made in the same pass:
	DHidden Tensor // like Hidden, out
	Weight  Tensor // f32 [tokens]: d(total loss)/d(token loss)
	Scale   Tensor // f32 [1]: loss scale; none: 1
	// Rows are stretches {first, number} of tokens, ascending, outside of which losses and gradients are 0 and
	// no logits are made; nil: all tokens. They are the same on every rank; with leaves there are none.
	Rows [][2]int64
	// Batch is the samples of a position, whose tokens stand together: an adapter's dropout goes by position.
	Batch int64
	// Weigh, where given, is called when all losses are there, and sets Weight.
	Weigh func() error
	// TableStays: the table gets no gradient.
	TableStays bool
	Hooks      *Hooks // of the pass; nil: none
}

// Tensor shortens the signatures above.
type Tensor = device.Tensor

// Loss computes the tokens' losses and, where asked, dHidden and the weight's gradient.
func (l *VocabParallelHead) Loss(d *device.Device, a LossArgs) error {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	hidden, joining := entering(l.region, s, a.Hidden)
	if err := wait(joining); err != nil {
		return err
	}
	dhidden := a.DHidden
	if a.DHidden.Given() {
		dhidden = leaving(l.region, s, a.DHidden)
	}
	full := a
	full.Hidden, full.DHidden = hidden, dhidden
	if err := l.blocks(d, full); err != nil {
		return err
	}
	if l.sumsOnce() && a.DHidden.Given() {
		return wait(leave(l.region, d, a.DHidden, dhidden))
	}
	return nil
}

// sumsOnce reports whether the ranks' parts of hidden gradients are added up for all tokens at
// once, else block by block, with the table's gradient.
func (l *VocabParallelHead) sumsOnce() bool { return l.region.Cut() || l.region.Leaves > 0 }

// blockRows is how many tokens a block has: complete leaves, and with an adapter complete positions.
func (l *VocabParallelHead) blockRows(d *device.Device, a *LossArgs) int64 {
	leaves := a.Hooks.leaves().long()
	rows, unit := HeadRows(d), leaves.Chunk*leaves.Batch
	if l.adapter != nil && unit == 0 {
		unit = a.Batch
	}
	if unit > 0 {
		rows = max(1, rows/unit) * unit
	}
	return min(rows, a.Hidden.Shape[0])
}

// blocks works on the tokens, a few rows of logits at a time.
func (l *VocabParallelHead) blocks(d *device.Device, a LossArgs) error {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	size, all := l.blockRows(d, &a), int64(0)
	stretches := a.stretches(size)
	for _, c := range stretches {
		all += c[1]
	}
	a.clear(d)
	w := l.newWorkspace(s, &a, size)
	// Losses first where they decide on weights. Logits that all fit stay for the gradient, others are made again.
	stay := a.Weigh != nil && all <= size
	each := func(f func(c block) error) error {
		at := int64(0)
		for _, c := range stretches {
			if err := f(w.block(&a, c, at)); err != nil {
				return err
			}
			if stay {
				at += c[1]
			}
		}
		return nil
	}
	if a.Weigh != nil {
		if err := each(func(c block) error { return l.losses(d, c) }); err != nil {
			return err
		}
		if err := a.Weigh(); err != nil || !a.DHidden.Given() {
			return err
		}
	}
	return each(func(c block) error {
		if !stay {
			if err := l.losses(d, c); err != nil {
				return err
			}
		}
		return l.gradient(d, c)
	})
}

// stretches are those of Rows, cut where they are longer than `size`.
func (a *LossArgs) stretches(size int64) (all [][2]int64) {
	rows := a.Rows
	if rows == nil {
		rows = [][2]int64{{0, a.Hidden.Shape[0]}}
	}
	for _, r := range rows {
		for at := int64(0); at < r[1]; at += size {
			all = append(all, [2]int64{r[0] + at, min(size, r[1]-at)})
		}
	}
	return all
}

// clear sets what is out to 0 where Rows leaves tokens out.
func (a *LossArgs) clear(d *device.Device) {
	if a.Rows == nil {
		return
	}
	for _, t := range []Tensor{a.Loss, a.Best, a.Target, a.DHidden} {
		if t.Given() {
			d.Fill(t, 0)
		}
	}
}

// workspace is memory for `size` rows of logits.
type workspace struct{ logits, grad, stats Tensor }

func (l *VocabParallelHead) newWorkspace(s *device.Scope, a *LossArgs, size int64) (w workspace) {
	w.logits = s.Alloc(logitsType(a.Hidden.DType), size, l.Weight.Shape[0])
	w.grad = w.logits                                                         // of the logits; in place where the dtypes agree
	if a.DHidden.Given() && (a.Hidden.DType != w.logits.DType || l.Cap > 0) { // the cap's gradient reads the logits
		w.grad = s.Alloc(a.Hidden.DType, size, l.Weight.Shape[0])
	}
	w.stats = s.Alloc(w.logits.DType, 3, size)
	return w
}

// block is the tokens of a stretch, with logits from row `row` of the workspace on.
func (w *workspace) block(a *LossArgs, stretch [2]int64, row int64) block {
	at, n := stretch[0], stretch[1]
	cut := func(t Tensor) Tensor {
		if !t.Given() {
			return t
		}
		return t.Slice(0, at, n)
	}
	c := block{
		hidden: cut(a.Hidden), labels: cut(a.Labels), loss: cut(a.Loss), scale: a.Scale, best: cut(a.Best), labelled: cut(a.Target),
		hooks: a.Hooks, row: at, logits: w.logits.Slice(0, row, n), grad: w.grad.Slice(0, row, n),
		stats: w.stats.Reshape(w.stats.Len()).Slice(0, 3*row, 3*n).Reshape(3, n), most: w.logits.Shape[0],
	}
	if a.DHidden.Given() {
		c.dhidden, c.weight, c.tableStays = cut(a.DHidden), cut(a.Weight), a.TableStays
	}
	return c
}

// block is a few tokens on their way through the head.
type block struct {
	hidden, labels, loss, logits, grad Tensor
	stats                              Tensor // [3, rows]: max, sum, target
	dhidden, weight, scale             Tensor
	best, labelled                     Tensor // of all ranks
	tableStays                         bool
	hooks                              *Hooks
	row                                int64 // number of the first token in the pass
	most                               int64 // rows of the largest block, which what all blocks need is made for; 0: this one
}

// alloc is memory for [each..., rows] elements, as much as the largest block has: how much memory a pass takes does not
// depend on which tokens are learned.
func (c *block) alloc(s *device.Scope, dtype device.DType, each ...int64) Tensor {
	rows := c.stats.Last()
	n := int64(1)
	for _, e := range each {
		n *= e
	}
	return s.Alloc(dtype, n*max(rows, c.most)).Slice(0, 0, n*rows).Reshape(append(each, rows)...)
}

func (c *block) max() Tensor    { return c.stats.At(0) }
func (c *block) sum() Tensor    { return c.stats.At(1) }
func (c *block) target() Tensor { return c.stats.At(2) }

// losses makes the losses of a block; logits and statistics stay for its gradient.
func (l *VocabParallelHead) losses(d *device.Device, c block) error {
	// Logits of this rank's part of the vocabulary, [n, vocab/tp].
	d.Matmul(device.MatmulArgs{C: c.logits, A: c.hidden, B: l.Weight.Value, TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.one()})
	l.adapter.unless(c.hooks).forward(d, c.hooks, c.logits, c.hidden, c.row, c.row+c.hidden.Shape[0])
	l.capped(d, c.logits)
	// Largest logit, sum of exponentials and the label's logit, here and then over all ranks.
	if l.region.Leaves == 0 || c.best.Given() {
		d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: c.logits, Labels: c.labels, Max: c.max(), Sum: c.sum(), Target: c.target(), Start: l.Start, Columns: l.Columns})
	}
	if c.best.Given() {
		d.Copy(c.best, c.max())
		if l.region.Size() > 1 {
			if err := l.region.AllReduce(c.best, comm.Max).Wait(); err != nil {
				return err
			}
		}
	}
	if err := l.combine(d, &c); err != nil {
		return err
	}
	if c.best.Given() {
		d.Copy(c.labelled, c.target())
	}
	// loss = log(sum) + max - target, f32 [n]
	d.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: c.loss, Max: c.max(), Sum: c.sum(), Target: c.target()})
	return nil
}

// gradient makes the gradients of a block whose losses are there; without a dhidden there are none.
func (l *VocabParallelHead) gradient(d *device.Device, c block) error {
	if !c.dhidden.Given() {
		return nil
	}
	// Gradient of the logits, (softmax - onehot)·weight·scale, then of the logits before the cap.
	d.CrossEntropyGrad(device.CrossEntropyGradArgs{D: c.grad, Logits: c.logits, Labels: c.labels, Max: c.max(), Sum: c.sum(),
		Weight: c.weight, Scale: c.scale, Start: l.Start, Columns: l.Columns})
	if l.Cap > 0 {
		d.SoftCapBackward(device.SoftCapBackwardArgs{DX: c.grad, DY: c.grad, Y: c.logits, Cap: l.Cap})
	}
	// dhidden: [n, h], this rank's part of the sum over the vocabulary; while ranks add it up, the table's
	// gradient is computed.
	d.Matmul(device.MatmulArgs{C: c.dhidden, A: c.grad, B: l.Weight.Value, Leaves: l.region.Share()})
	if err := l.adapter.backward(d, c.hooks, c.dhidden, c.grad, c.hidden, c.row); err != nil {
		return err
	}
	var summing comm.Work
	if l.region.Size() > 1 && !l.sumsOnce() { // else all blocks are summed as one
		summing = CopyToRegionBackward(l.region, c.dhidden)
	}
	if !c.tableStays {
		weightGradient(d, c.hooks.leaves().long(), l.Weight, c.grad, c.hidden)
	}
	return wait(summing)
}

// capped bounds logits where the head has a Cap.
func (l *VocabParallelHead) capped(d *device.Device, logits Tensor) {
	if l.Cap > 0 {
		d.SoftCap(device.SoftCapArgs{Out: logits, X: logits, Cap: l.Cap})
	}
}

// combine turns the statistics of the columns here into those of all ranks'.
// log Σ exp(x) of some columns stands for them all: the softmax's statistics of those few
// numbers are the statistics of the complete row. So one gather of two numbers a token does, of the
// columns of each rank or, with leaves, of each leaf. Where no column counts it is log 0.
func (l *VocabParallelHead) combine(d *device.Device, c *block) error {
	if l.region.Size() == 1 && l.region.Leaves == 0 {
		return nil
	}
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	here := int64(max(1, l.region.Share()))
	parts, dtype := here*int64(l.region.Size()), c.stats.DType
	all, mine := c.alloc(s, dtype, parts, 2), c.alloc(s, dtype, here, 2)
	l.parts(d, s, c, mine)
	if l.region.Size() == 1 {
		all = mine
	} else if err := l.region.AllGather(all, mine).Wait(); err != nil {
		return err
	}
	joinParts(d, s, all, c)
	return nil
}

// joinParts sets the statistics of rows from those of parts of their columns, all [parts, 2, rows].
func joinParts(d *device.Device, s *device.Scope, all Tensor, c *block) {
	parts, rows, dtype := all.Shape[0], all.Last(), all.DType
	parted, nobody := c.alloc(s, dtype, parts).Reshape(rows, parts), c.alloc(s, device.I32)
	d.Copy(parted, device.Strided(all.Data, dtype, []int64{rows, parts}, []int64{1, 2 * rows}))
	d.Fill(nobody, -1)
	d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: parted, Labels: nobody, Max: c.max(), Sum: c.sum(), Target: c.target(), Columns: parts})
	d.Fill(c.target(), 0)
	d.ColumnSum(device.ColumnSumArgs{Out: c.target(), X: device.Strided(all.Slice(1, 1, 1).Data, dtype, []int64{parts, rows}, []int64{2 * rows, 1})})
}

// LossesOf sets loss f32 [rows] to the losses of rows of complete logits f32 [rows, width]. They have the bits that
// VocabParallelHead computes if `ranks` ranks share the head: the operations and shapes are the same. `columns` of
// each row count in the softmax.
func LossesOf(d *device.Device, loss, logits, labels Tensor, ranks int, columns int64) {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	rows, width := logits.Shape[0], logits.Last()/int64(ranks)
	all, none := s.Alloc(logits.DType, int64(ranks), 2, rows), s.Alloc(logits.DType, rows)
	d.Fill(none, 0)
	c := &block{labels: labels, logits: s.Alloc(logits.DType, rows, width), stats: s.Alloc(logits.DType, 3, rows)}
	for i := range int64(ranks) {
		d.Copy(c.logits, logits.Slice(1, i*width, width)) // kernels go by how rows lie
		d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: c.logits, Labels: labels, Max: c.max(), Sum: c.sum(), Target: c.target(), Start: i * width, Columns: max(0, min(width, columns-i*width))})
		if ranks > 1 {
			d.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: all.At(i).At(0), Max: c.max(), Sum: c.sum(), Target: none})
			d.Copy(all.At(i).At(1), c.target())
		}
	}
	if ranks > 1 {
		joinParts(d, s, all, c)
	}
	d.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: loss, Max: c.max(), Sum: c.sum(), Target: c.target()})
}

// parts sets mine [parts, 2, rows] to log Σ exp(x) and the label's logit of each part of the
// columns here: all of them, or a leaf's.
func (l *VocabParallelHead) parts(d *device.Device, s *device.Scope, c *block, mine Tensor) {
	none := c.alloc(s, c.stats.DType)
	d.Fill(none, 0)
	width := l.Weight.Shape[0] / mine.Shape[0]
	for i := range mine.Shape[0] {
		if l.region.Leaves > 0 {
			d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: c.logits.Slice(1, i*width, width), Labels: c.labels, Max: c.max(), Sum: c.sum(), Target: c.target(),
				Start: l.Start + i*width, Columns: max(0, min(width, l.Columns-i*width))})
		}
		d.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: mine.At(i).At(0), Max: c.max(), Sum: c.sum(), Target: none})
		d.Copy(mine.At(i).At(1), c.target())
	}
}

// Logits sets out f32 [tokens, n] to the logits of hidden [tokens, h], for generation: those of
// the first n tokens of the vocabulary, on every rank. An adapter's rows must be among them.
func (l *VocabParallelHead) Logits(d *device.Device, h *Hooks, out, hidden Tensor) error {
	ad := l.adapter.unless(h)
	if l.region.Size() == 1 {
		d.Matmul(device.MatmulArgs{C: out, A: hidden, B: l.Weight.Value.Slice(0, 0, out.Last()), TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.one()})
		ad.forward(d, h, out, hidden, 0, hidden.Shape[0])
		l.capped(d, out)
		return nil
	}
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	rows, n := hidden.Shape[0], l.Weight.Shape[0]
	own, full := s.Alloc(out.DType, rows, n), s.Alloc(out.DType, rows, n*int64(l.region.Size()))
	d.Matmul(device.MatmulArgs{C: own, A: hidden, B: l.Weight.Value, TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.one()})
	ad.forward(d, h, own, hidden, 0, rows)
	l.capped(d, own)
	if err := GatherFromRegionForward(l.region, d, full, own); err != nil {
		return err
	}
	d.Copy(out, full.Slice(1, 0, out.Last()))
	return nil
}

// logitsType: the softmax works on f32 logits whatever the values are.
func logitsType(value device.DType) device.DType {
	if value == device.F64 {
		return device.F64
	}
	return device.F32
}
