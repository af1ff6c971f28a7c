package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// ExpertShare is which experts a rank has, and which part of each.
type ExpertShare struct {
	Experts     int // of a layer, on all ranks
	First, Here int // those of this rank
	Part, Parts int // of each: expert tensor parallelism
	Leaves      int // of each one's channels, whose sums are trees of these (Region.Leaves); 0: sums are not cut

	Sharers *comm.Group // ranks that have the parts of each; nil: this one has all
}

// share is how many leaves a rank has of an axis that the parts of an expert cut; 0: its sums are not cut.
func (at ExpertShare) share() int32 { return int32(at.Leaves / at.Parts) }

// one is 1 where sums have an order that no shape changes.
func (at ExpertShare) one() int32 { return min(1, int32(at.Leaves)) }

// Partial is the dtype of a partial sum over an expert's channels. With leaves (--layout-invariant)
// it is f32, so that sums of several ranks are added before they are rounded once.
func (at ExpertShare) Partial(value device.DType) device.DType {
	if at.Leaves == 0 || at.Parts == 1 || value == device.F64 {
		return value
	}
	return device.F32
}

// ExpertLinear is y = x·W[e]ᵀ + b[e] for rows that are sorted by expert e, with W
// [E, out, in]. A layer that is cut by rows has a part of each y's columns, one that is
// cut by columns a part of its sum.
type ExpertLinear struct {
	Weight, Bias *Param // Bias nil: none
	at           ExpertShare
	rows         [][2]int64      // stretches of each expert's rows here; nil: the layer is cut by columns
	branches     []*expertBranch // nil: none
	fp8          *layerFP8
}

// NewExpertLinear makes the layer from what c says of one expert's: Rows are the stretches
// of W[e] here of a layer that is cut by rows; nil: it is cut by columns.
func NewExpertLinear(at ExpertShare, c LinearConfig) *ExpertLinear {
	l := &ExpertLinear{at: at, rows: c.Rows, Weight: &Param{Name: c.Name + ".weight", Init: c.Init, Global: []int64{int64(at.Experts), c.Out, c.In}}}
	if c.Rows == nil {
		n := c.In / int64(at.Parts)
		l.Weight.Shape = []int64{int64(at.Here), c.Out, n}
		l.Weight.Pieces = []Piece{{From: []int64{int64(at.First), 0, n * int64(at.Part)}, Size: l.Weight.Shape}}
		c.Rows = [][2]int64{{0, c.Out}}
	} else {
		l.Weight.stackRows(at, c.Rows)
	}
	l.Weight.Gated = c.Gated
	l.fp8 = c.FP8.experts(c.Name, at, l.Weight.Shape[1])
	if c.Bias {
		l.Bias = &Param{Name: c.Name + ".bias", Init: Init{Kind: InitConstant}, Global: []int64{int64(at.Experts), c.Out}, NoDecay: true}
		l.Bias.stackRows(at, c.Rows)
	}
	for _, p := range l.Params() {
		p.Family, p.Owner, p.Each = Experts, true, c.Each(p.Name)
	}
	return l
}

// stackRows gives p stretches of rows of each expert here, one expert after the other.
func (p *Param) stackRows(at ExpertShare, stretches [][2]int64) {
	width, rows := int64(1), int64(0)
	for _, n := range p.Global[2:] {
		width *= n
	}
	for _, s := range stretches {
		rows += s[1]
	}
	p.Shape = append([]int64{int64(at.Here), rows}, p.Global[2:]...)
	if rows == p.Global[1] {
		p.Pieces = []Piece{{From: []int64{int64(at.First), 0, 0}[:len(p.Global)], Size: p.Shape}}
		return
	}
	local := int64(0)
	for e := range at.Here {
		for _, s := range stretches {
			p.Pieces = append(p.Pieces, Piece{From: []int64{int64(at.First + e), s[0], 0}[:len(p.Global)], Size: append([]int64{1, s[1]}, p.Global[2:]...), Local: local})
			local += s[1] * width
		}
	}
}

// Params lists weight and bias, then A and B of its adapters.
func (l *ExpertLinear) Params() []*Param {
	all := given(l.Weight, l.Bias)
	for _, b := range l.branches {
		all = append(all, b.a, b.b)
	}
	return all
}

// Forward: x [rows, in here] -> y [rows, out here], of a layer that is cut by columns a partial
// sum of type ExpertShare.Partial; the rows of expert e lie between offsets e and e+1.
func (l *ExpertLinear) Forward(d *device.Device, h *Hooks, y, x, offsets device.Tensor) {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	f := l.fp8.ofExperts(d, s, offsets, x, device.Tensor{}, l.Weight)
	a := device.GroupedMatmulArgs{C: y, A: f.x(x), B: f.w(l.Weight.Value), Offsets: offsets, TransB: 1, Leaves: l.at.share()}
	if l.rows != nil {
		a.Leaves = l.at.one()
	}
	if l.Bias != nil {
		a.Bias = l.Bias.Value
	}
	f.product(a)
	if h != nil && h.Bare {
		return
	}
	for _, b := range l.branches {
		b.forward(d, y, x, offsets)
	}
}

// Backward: dx = dy·W, of a layer that is cut by rows a partial sum as of Forward; gradients of
// weight and bias +=. leaf i32 [rows] is Dispatched.Leaf.
func (l *ExpertLinear) Backward(d *device.Device, dx, dy, x, offsets, leaf device.Tensor) {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	f := l.fp8.ofExperts(d, s, offsets, x, dy, l.Weight)
	a := device.GroupedMatmulArgs{C: dx, A: f.dy(dy), B: f.w(l.Weight.Value), Offsets: offsets, Leaves: l.at.one()}
	if l.rows != nil {
		a.Leaves = l.at.share()
	}
	if len(l.rows) > 1 && a.Leaves > 0 {
		a.Stretches = int32(len(l.rows))
	}
	f.product(a)
	if w := l.Weight; !w.Frozen {
		g := device.GroupedMatmulArgs{C: w.Grad, Offsets: offsets, TransA: 1}
		g.A, g.B = f.overRows(dy, x)
		if w.exact() {
			g.Grid, g.Peak, g.Leaf = w.Grid, w.Peak, leaf
		}
		d.GroupedMatmul(g)
	}
	if b := l.Bias; b != nil && !b.Frozen {
		g := device.GroupedSumArgs{Out: b.Grad, X: dy, Offsets: offsets}
		if b.exact() {
			g.Grid, g.Peak, g.Leaf = b.Grid, b.Peak, leaf
		}
		d.GroupedSum(g)
	}
	for _, b := range l.branches {
		b.backward(d, dx, dy, x, offsets)
	}
}

// Linear is y = x·Wᵀ + b, complete on every rank of a region and outside of it: a router, a
// gate.
type Linear struct {
	Weight, Bias *Param // Bias nil: none
	region       Region
}

// NewLinear makes the layer; what c says of cuts is not used.
func NewLinear(r Region, c LinearConfig) *Linear {
	l := &Linear{region: r, Weight: Uncut(c.Name+".weight", c.Init, c.Out, c.In)}
	if c.Bias {
		l.Bias = Uncut(c.Name+".bias", Init{Kind: InitConstant}, c.Out)
	}
	for _, p := range l.Params() {
		p.Outside(r)
	}
	return l
}

// Params lists weight and bias.
func (l *Linear) Params() []*Param { return given(l.Weight, l.Bias) }

// Forward: x [rows, in] -> y [rows, out].
func (l *Linear) Forward(d *device.Device, y, x device.Tensor) {
	a := device.MatmulArgs{C: y, A: x, B: l.Weight.Value, TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.one()}
	if l.Bias != nil {
		a.Bias = l.Bias.Value
	}
	d.Matmul(a)
}

// Product sets c [rows, n] to a·bᵀ of a [rows, k] and some rows b [n, k] of a weight, rounded as by Linear.Forward.
func (r Region) Product(d *device.Device, c, a, b device.Tensor) {
	d.Matmul(device.MatmulArgs{C: c, A: a, B: b, TransB: 1, ByRow: r.byRow(), Leaves: r.one()})
}

// Backward: dx [rows, in] = dy [rows, out]·W; gradients of weight and bias +=.
func (l *Linear) Backward(d *device.Device, h *Hooks, dx, dy, x device.Tensor) {
	d.Matmul(device.MatmulArgs{C: dx, A: dy, B: l.Weight.Value, Leaves: l.region.one()})
	weightGradient(d, h.leaves(), l.Weight, dy, x)
	biasGradient(d, h, l.Bias, dy)
}
