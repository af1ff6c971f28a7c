package mpu

import (
	"monotron/csrc/device"
)

// LinearConfig describes a linear layer y = x·Wᵀ + b with W [Out, In].
type LinearConfig struct {
	Name    string // of weight and bias, less ".weight"
	Out, In int64  // of the global matrix
	Bias    bool
	Gated   bool // Param.Gated of the weight
	Init    Init
	FP8     *FP8 // nil: operands are not rounded

	// Of a column-parallel layer:
	Rows         [][2]int64 // stretches {first, rows} of W here; nil: an even share
	Shared       *SharedRows
	QKV          [3]int64 // Param.QKV of the weight
	Head         int64    // Param.Head of the weight
	GatherOutput bool     // y is [tokens, Out] on every rank
	// With leaves: stretches {first, columns} of y here in the order of the leaves, of shared ones those that
	// this rank counts; nil: as they lie.
	LeafOrder [][2]int64

	// Tiles cuts the weight into as many stretches of rows and of columns, each block of which comes
	// and goes by itself; 0: it is one.
	Tiles int

	// Of the experts' layers: Param.Each of a parameter by its name.
	Each func(name string) func(i int64) string

	// Of a row-parallel layer:
	InputIsFull bool // x is [tokens, In] on every rank; else its columns here
	AddBias     bool // else the bias is left to a fused op after the layer (Megatron's skip_bias_add)
}

// SharedRows are rows of W that several ranks hold: keys and values where query
// groups are fewer than ranks. Their gradients are partial on each.
type SharedRows struct {
	Rows    [][2]int64
	Sharers Region
}

// ColumnParallelLinear is y = x·Wᵀ + b with the rows of W [out, in] cut over the
// tensor-parallel ranks: each makes its own columns of y. Under sequence
// parallelism x is the rank's rows.
type ColumnParallelLinear struct {
	Weight, Bias             *Param // Bias nil: none
	SharedWeight, SharedBias *Param // rows after those of Weight that other ranks hold too; nil: none
	region                   Region
	gather                   bool
	stretches                int32  // of the rows here, where they are several of the global matrix
	sharers                  Region // of shared rows
	order                    [][2]int64
	adapter                  *adapter // nil: none
	fp8                      *layerFP8
}

// NewColumnParallelLinear makes the layer. Gated fc1 has two stretches of rows a
// rank: its gate's and its up's.
func NewColumnParallelLinear(r Region, c LinearConfig) *ColumnParallelLinear {
	if c.Rows == nil {
		n := c.Out / int64(r.Size())
		c.Rows = [][2]int64{{n * int64(r.Rank()), n}}
	}
	l := &ColumnParallelLinear{region: r, gather: c.GatherOutput && r.Size() > 1, order: c.LeafOrder, fp8: c.FP8.layer(c.Name)}
	if r.Leaves > 0 && len(c.Rows) > 1 {
		l.stretches = int32(len(c.Rows))
	}
	l.Weight, l.Bias = c.params(c.Rows)
	l.Weight.tiled(c.Tiles).Strips = c.strips(r)
	if c.Shared == nil {
		return l
	}
	l.SharedWeight, l.SharedBias = c.params(c.Shared.Rows)
	l.SharedWeight.Strips = c.strips(r)
	l.sharers = c.Shared.Sharers
	for _, p := range []*Param{l.SharedWeight, l.SharedBias} {
		if p != nil {
			p.PartialOn(c.Shared.Sharers)
		}
	}
	return l
}

// strips reports whether the layer's products take its weight in stretches: not with FP8, whose scales are of larger
// parts of the weight, nor with leaves, whose order may be another than that of the columns.
func (c *LinearConfig) strips(r Region) bool { return c.FP8 == nil && r.Leaves == 0 }

func (c *LinearConfig) params(rows [][2]int64) (weight, bias *Param) {
	n := int64(0)
	for _, s := range rows {
		n += s[1]
	}
	weight = Rows(c.Name+".weight", c.Init, []int64{c.Out, c.In}, rows, n)
	weight.QKV, weight.Head, weight.Gated = c.QKV, c.Head, c.Gated
	if c.Bias {
		bias = Rows(c.Name+".bias", Init{Kind: InitConstant}, []int64{c.Out}, rows, n)
	}
	return weight, bias
}

// Params lists weight and bias, those of shared rows last.
func (l *ColumnParallelLinear) Params() []*Param {
	return append(given(l.Weight, l.Bias, l.SharedWeight, l.SharedBias), l.adapter.params()...)
}

// given drops the parameters that are not there; tiles stand for their weight.
func given(ps ...*Param) []*Param {
	var out []*Param
	for _, p := range ps {
		if p != nil && p.tiles == nil {
			out = append(out, p)
		}
		if p != nil {
			for _, line := range p.tiles {
				for _, t := range line {
					out = append(out, t.param())
				}
			}
		}
	}
	return out
}

// Columns is how many columns of y this rank makes.
func (l *ColumnParallelLinear) Columns() int64 {
	n := l.Weight.Shape[0]
	if l.SharedWeight != nil {
		n += l.SharedWeight.Shape[0]
	}
	return n
}

// part is a weight with its bias and its columns of y.
type part struct {
	weight, bias *Param
	from, n      int64
	sharers      *Region // ranks that hold these rows too; nil: none
}

func (l *ColumnParallelLinear) parts() []part {
	n := l.Weight.Shape[0]
	ps := []part{{weight: l.Weight, bias: l.Bias, n: n}}
	if l.SharedWeight != nil {
		ps = append(ps, part{l.SharedWeight, l.SharedBias, n, l.SharedWeight.Shape[0], &l.sharers})
	}
	return ps
}

// Forward: x [tokens, in] (its rows here, under sequence parallelism) -> y
// [tokens, out/tp], with GatherOutput [tokens, out]. With an epilogue aux receives
// what goes into the activation.
func (l *ColumnParallelLinear) Forward(d *device.Device, h *Hooks, y, x device.Tensor, epilogue device.Epilogue, aux device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	ad := l.adapter.unless(h)
	parts, err := ad.weights(d, s, l.parts())
	if err != nil {
		return err
	}
	// Under sequence parallelism x is gathered while its first rows are multiplied.
	full, w := entering(l.region, s, x)
	own := y
	if l.gather {
		own = s.Alloc(y.DType, full.Shape[0], l.Columns())
	}
	f, err := l.fp8.of(d, s, l.region, x, device.Tensor{}, parts)
	if err != nil {
		return err
	}
	// Rows from..from+n: a product for each part of the weight [rows, in], in stretches that fit memory.
	err = l.region.gathered(w, full, x, func(x device.Tensor, from, n int64) error {
		operand := f.x(x)
		for _, p := range parts {
			err := p.weight.byRows(d, h, x.DType, func(weight device.Tensor, row, rows int64) {
				a := device.MatmulArgs{C: own.Slice(0, from, n).Slice(1, p.from+row, rows), A: operand, B: f.w(weight), TransB: 1, Epilogue: epilogue, ByRow: l.region.byRow(), Leaves: l.region.one()}
				if aux.Given() {
					a.Aux = aux.Slice(0, from, n).Slice(1, p.from+row, rows)
				}
				if p.bias != nil {
					a.Bias = p.bias.Value.Slice(0, row, rows)
				}
				f.product(a)
			})
			if err != nil {
				return err
			}
		}
		ad.forward(d, h, own.Slice(0, from, n), x, from, full.Shape[0])
		return nil
	})
	if err != nil {
		return err
	}
	// GatherOutput: every rank gets all columns.
	if l.gather {
		return GatherFromRegionForward(l.region, d, y, own)
	}
	return nil
}

// Backward: dx, shaped as x, = dy·W summed over the ranks; gradients of weight and bias +=.
// Under sequence parallelism x is gathered again, not kept; it travels while dx is
// made, and dx while the weight's gradient is.
func (l *ColumnParallelLinear) Backward(d *device.Device, h *Hooks, dx, dy, x device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	if l.gather {
		dy = GatherFromRegionBackward(l.region, dy)
	}
	parts, err := l.adapter.weights(d, s, l.parts())
	if err != nil {
		return err
	}
	full, joining := entering(l.region, s, x)
	dwhole := leaving(l.region, s, dx)
	f, err := l.fp8.of(d, s, l.region, x, dy, parts)
	if err != nil {
		return err
	}
	if err := l.inputGradient(d, h, f, parts, dwhole, f.dy(dy)); err != nil {
		return err
	}
	if err := wait(joining); err != nil {
		return err
	}
	if err := l.adapter.backward(d, h, dwhole, dy, full, 0); err != nil {
		return err
	}
	summing := leave(l.region, d, dx, dwhole)
	dy8, x8 := f.dyOverTokens(dy), f.xOverTokens(full)
	for _, p := range l.parts() { // a weight with a magnitude is frozen
		if l.region.Leaves > 0 && p.sharers != nil && p.sharers.Rank() > 0 {
			continue // all sharers have the complete dy of these rows, and the first adds their gradient
		}
		if err := p.weight.addGradient(d, h, dy8.Slice(1, p.from, p.n), x8); err != nil {
			return err
		}
		biasGradient(d, h, p.bias, dy.Slice(1, p.from, p.n))
	}
	return wait(summing)
}

// inputGradient sets dx = dy·W over this rank's columns of dy. Several parts are
// added up in f32.
func (l *ColumnParallelLinear) inputGradient(d *device.Device, h *Hooks, f operands, parts []part, dx, dy device.Tensor) error {
	if l.order != nil {
		l.orderedGradient(d, f, parts, dx, dy)
		return nil
	}
	sum := dx
	if len(parts) > 1 && dx.DType.Size() < device.F32.Size() {
		sum = d.Arena.Alloc(device.Workspace, device.F32, dx.Dims()...)
		defer d.Arena.Free(sum)
	}
	for i, p := range parts {
		err := p.weight.byColumns(d, h, dy.DType, func(weight device.Tensor, from, n int64) {
			f.product(device.MatmulArgs{C: sum.Slice(1, from, n), A: dy.Slice(1, p.from, p.n), B: f.wOverOut(weight), Accumulate: int32(min(i, 1)), Leaves: l.region.Share(), Stretches: l.stretches})
		})
		if err != nil {
			return err
		}
	}
	if sum.Data != dx.Data {
		d.Copy(dx, sum)
	}
	return nil
}

// orderedGradient is inputGradient over the columns of dy in the order of the leaves.
func (l *ColumnParallelLinear) orderedGradient(d *device.Device, f operands, parts []part, dx, dy device.Tensor) {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	n := int64(0)
	for _, c := range l.order {
		n += c[1]
	}
	columns, weight := s.Alloc(dy.DType, dy.Shape[0], n), s.Alloc(dy.DType, n, dx.Last())
	values := make([]device.Tensor, len(parts))
	for i, p := range parts {
		values[i] = f.wOverOut(p.weight.Value)
	}
	at := int64(0)
	for _, c := range l.order {
		d.Copy(columns.Slice(1, at, c[1]), dy.Slice(1, c[0], c[1]))
		for i, p := range parts {
			from, to := max(c[0], p.from), min(c[0]+c[1], p.from+p.n)
			if from < to {
				d.Copy(weight.Slice(0, at+from-c[0], to-from), values[i].Slice(0, from-p.from, to-from))
			}
		}
		at += c[1]
	}
	f.product(device.MatmulArgs{C: dx, A: columns, B: weight, Leaves: l.region.Share()})
}

// RowParallelLinear is y = x·Wᵀ with the columns of W [out, in] cut over the
// ranks. Its bias comes once, after the sum over ranks. Under sequence
// parallelism y is the rank's rows.
type RowParallelLinear struct {
	Weight, Bias *Param // Bias nil: none
	region       Region
	full, add    bool
	adapter      *adapter // nil: none
	fp8          *layerFP8
}

// NewRowParallelLinear makes the layer with its share of the columns of the
// global matrix here.
func NewRowParallelLinear(r Region, c LinearConfig) *RowParallelLinear {
	n := c.In / int64(r.Size())
	w := &Param{Name: c.Name + ".weight", Init: c.Init, Global: []int64{c.Out, c.In}, Shape: []int64{c.Out, n}, Owner: true,
		Pieces: []Piece{{From: []int64{0, n * int64(r.Rank())}, Size: []int64{c.Out, n}}}}
	w.tiled(c.Tiles).Strips = c.strips(r)
	l := &RowParallelLinear{region: r, Weight: w, full: c.InputIsFull && r.Size() > 1, add: c.AddBias && c.Bias, fp8: c.FP8.layer(c.Name)}
	if c.Bias {
		l.Bias = Uncut(c.Name+".bias", Init{Kind: InitConstant}, c.Out)
		l.Bias.Outside(r)
	}
	return l
}

// Params lists weight and bias.
func (l *RowParallelLinear) Params() []*Param {
	return append(given(l.Weight, l.Bias), l.adapter.params()...)
}

func (l *RowParallelLinear) parts() []part {
	return []part{{weight: l.Weight, n: l.Weight.Shape[0]}}
}

// Forward: x [tokens, in/tp], with InputIsFull [tokens, in] -> y [tokens, out]
// (its rows here), summed over the ranks.
func (l *RowParallelLinear) Forward(d *device.Device, h *Hooks, y, x device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	if l.full {
		x = ScatterToRegionForward(l.region, x)
	}
	ad := l.adapter.unless(h)
	parts, err := ad.weights(d, s, l.parts())
	if err != nil {
		return err
	}
	f, err := l.fp8.of(d, s, l.region, x, device.Tensor{}, parts)
	if err != nil {
		return err
	}
	operand := f.x(x)
	err = l.region.scattered(d, s, y, func(sum device.Tensor, from, n int64) error {
		err := parts[0].weight.byRows(d, h, x.DType, func(weight device.Tensor, row, rows int64) {
			f.product(device.MatmulArgs{C: sum.Slice(1, row, rows), A: operand.Slice(0, from, n), B: f.w(weight), TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.Share()})
		})
		ad.forward(d, h, sum, x.Slice(0, from, n), from, x.Shape[0])
		return err
	})
	if err != nil {
		return err
	}
	if l.add {
		d.DropoutAdd(device.DropoutAddArgs{Out: y, X: y, Bias: l.Bias.Value})
	}
	return nil
}

// Backward: dx [tokens, in/tp] = dy·W, with InputIsFull [tokens, in]; gradients
// of weight and bias +=. The bias saw the rows of dy that are here, so under
// sequence parallelism its gradient is a partial sum.
func (l *RowParallelLinear) Backward(d *device.Device, h *Hooks, dx, dy, x device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	// Under sequence parallelism dy is gathered; the bias sees the rows here alone.
	full, joining := entering(l.region, s, dy)
	biasGradient(d, h, l.Bias, dy)
	own := dx
	if l.full {
		x = ScatterToRegionForward(l.region, x)
		own = s.Alloc(dx.DType, x.Dims()...)
	}
	parts, err := l.adapter.weights(d, s, l.parts())
	if err != nil {
		return err
	}
	f, err := l.fp8.of(d, s, l.region, x, dy, parts)
	if err != nil {
		return err
	}
	// dx, in rows as they arrive; the weight [out, in/tp] in stretches of columns.
	err = l.region.gathered(joining, full, dy, func(dy device.Tensor, from, n int64) error {
		return parts[0].weight.byColumns(d, h, dy.DType, func(weight device.Tensor, column, columns int64) {
			f.product(device.MatmulArgs{C: own.Slice(0, from, n).Slice(1, column, columns), A: f.dy(dy), B: f.wOverOut(weight), Leaves: l.region.one()})
		})
	})
	if err != nil {
		return err
	}
	// Gradients of adapter and weight, over all rows.
	if err := l.adapter.backward(d, h, own, full, x, 0); err != nil {
		return err
	}
	if err := l.Weight.addGradient(d, h, f.dyOverTokens(full), f.xOverTokens(x)); err != nil {
		return err
	}
	if l.full {
		return ScatterToRegionBackward(l.region, d, dx, own)
	}
	return nil
}

// BiasValue is the bias for the fused op after the layer, or none.
func (l *RowParallelLinear) BiasValue() device.Tensor {
	if l.Bias == nil || l.add {
		return device.Tensor{}
	}
	return l.Bias.Value
}

// weightGradient accumulates dW += dyᵀ·x into the main gradient; leaves count where it is a sum on a grid.
func weightGradient(d *device.Device, leaves Leaves, w *Param, dy, x device.Tensor) {
	if w.Frozen {
		return
	}
	a := device.MatmulArgs{C: w.Grad, A: dy, B: x, TransA: 1, Accumulate: 1}
	if w.exact() {
		a.Grid, a.Peak, a.Chunk, a.Batch = w.Grid, w.Peak, int32(leaves.Chunk), int32(leaves.Batch)
	}
	d.Matmul(a)
}

// biasGradient accumulates db += Σ dy over the rows that are here.
func biasGradient(d *device.Device, h *Hooks, b *Param, dy device.Tensor) {
	if b == nil || b.Frozen {
		return
	}
	h.leaves().AddTo(d, []*Param{b}, dy.Shape[0], func(grads []device.Tensor, leaves Leaves) {
		d.ColumnSum(device.ColumnSumArgs{Out: grads[0], X: dy, Chunk: int32(leaves.Chunk), Batch: int32(leaves.Batch)})
	})
}
