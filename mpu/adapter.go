package mpu

import (
	"math"

	"monotron/csrc/device"
)

// AdapterPrefix begins the names of all parameters of adapters, which are PEFT's.
const AdapterPrefix = "base_model.model."

// Branch is a low-rank addition to some rows of a linear layer's weight: W + Scale·B·A with
// A [Rank, In] and B [Out, Rank] (Hu et al., LoRA, arXiv 2106.09685). With Magnitude each row
// of that sum is divided by its norm and multiplied by an entry of M [Out] (Liu et al., DoRA,
// arXiv 2402.09353); the norm is a constant in the backward pass.
type Branch struct {
	Name      string // of the module in Hugging Face's model
	Out, In   int64  // of the module's weight
	Rank      int64
	Scale     float64
	Dropout   float64 // of the branch's input; not with Magnitude
	Magnitude bool
	Rows      [][3]int64 // stretches of rows: {first of W, first of B, number}
}

// adapter is the branches of a linear layer; nil: none.
type adapter struct {
	region      Region
	rowParallel bool
	first       int64 // number of the first column of x in the module's input
	list        []*branch
}

type branch struct {
	Branch
	a      *Param
	pieces []branchPart // of parts of the layer's rows
}

// branchPart is the branch's share of one part of the layer's rows.
type branchPart struct {
	of   *Param     // the weight of the part
	from int64      // column of y that the part's first row makes
	b, m *Param     // B [rows, rank], M [rows]; m nil: none
	runs [][3]int64 // stretches of rows here: {first of the weight, first of B, number}
	rows int64      // of B
}

// newAdapter makes the branches' parameters: along a cut of the rows B is cut like them, and A
// is on every rank, where its gradient is a partial sum; along a cut of the columns A is cut, and
// B and M are on every rank.
func newAdapter(r Region, branches []Branch, parts []part, rowParallel bool) *adapter {
	ad := &adapter{region: r, rowParallel: rowParallel}
	for _, c := range branches {
		// A [rank, in] or this rank's columns of it, from column first.
		b := &branch{Branch: c}
		first, width := int64(0), parts[0].weight.Shape[1]
		if rowParallel {
			first = width * int64(r.Rank())
		}
		ad.first = first
		name := AdapterPrefix + c.Name
		b.a = &Param{Name: name + ".lora_A.weight", Init: Init{Kind: InitUniform, Value: 1 / math.Sqrt(float64(c.In))}, Global: []int64{c.Rank, c.In}, Shape: []int64{c.Rank, width}, Owner: true,
			Pieces: []Piece{{From: []int64{0, first}, Size: []int64{c.Rank, width}}}}
		if !rowParallel {
			b.a.PartialOn(r)
		}
		// B [rows, rank] (and DoRA's M [rows]) for each part of the base that the branch covers and this rank holds.
		for _, p := range parts {
			if piece := newBranchPart(c, p, name); piece.rows > 0 {
				for _, q := range given(piece.b, piece.m) {
					switch {
					case rowParallel:
						q.PartialOn(r)
					case p.sharers != nil:
						q.PartialOn(*p.sharers)
					}
				}
				b.pieces = append(b.pieces, piece)
			}
		}
		ad.list = append(ad.list, b)
	}
	return ad
}

// newBranchPart finds the branch's rows among those of a part.
func newBranchPart(c Branch, p part, name string) branchPart {
	out := branchPart{of: p.weight, from: p.from}
	var stretches [][2]int64 // of B
	for _, piece := range p.weight.Pieces {
		local := piece.Local / p.weight.Shape[1]
		for _, run := range c.Rows {
			from, to := max(run[0], piece.From[0]), min(run[0]+run[2], piece.From[0]+piece.Size[0])
			if from >= to {
				continue
			}
			at := local + from - piece.From[0]
			if n := len(out.runs); n > 0 && out.runs[n-1][0]+out.runs[n-1][2] == at {
				out.runs[n-1][2] += to - from
			} else {
				out.runs = append(out.runs, [3]int64{at, out.rows, to - from})
			}
			stretches = append(stretches, [2]int64{run[1] + from - run[0], to - from})
			out.rows += to - from
		}
	}
	out.b = Rows(name+".lora_B.weight", Init{Kind: InitConstant}, []int64{c.Out, c.Rank}, stretches, out.rows)
	out.b.Role = AdapterUp
	if c.Magnitude {
		out.m = Rows(name+".lora_magnitude_vector", Init{Kind: InitConstant}, []int64{c.Out}, stretches, out.rows)
		out.m.NoDecay = false // PEFT's optimizer decays it as it does A and B
	}
	return out
}

// params lists A, B and M of every branch.
func (ad *adapter) params() (all []*Param) {
	if ad == nil {
		return nil
	}
	for _, b := range ad.list {
		all = append(all, b.a)
		for _, p := range b.pieces {
			all = append(all, given(p.b, p.m)...)
		}
	}
	return all
}

// unless is the adapter of a forward pass: none where adapters are off.
func (ad *adapter) unless(h *Hooks) *adapter {
	if h != nil && h.Bare {
		return nil
	}
	return ad
}

// forward adds the branches of x [n, in here] to y [n, out here]; row is the number of x's first
// row in the pass, which has `rows`. A branch with a magnitude adds nothing: it is in the weight.
func (ad *adapter) forward(d *device.Device, h *Hooks, y, x device.Tensor, row, rows int64) {
	if ad == nil {
		return
	}
	for _, b := range ad.list {
		if b.Magnitude {
			continue
		}
		s := d.Arena.Scope(device.Activations)
		in := ad.dropped(d, h, s, b, x, row)
		kept := h.kept(b, x, row, rows)
		for _, p := range b.pieces {
			// y's columns of the piece += Scale·x·Aᵀ·Bᵀ.
			for _, to := range p.stretches(y) {
				args := device.LowRankAddArgs{Y: to.y, X: in, A: b.a.Value, B: p.b.Value.Slice(0, to.from, to.rows), Scale: float32(b.Scale), TransB: 1}
				if p.b.Turned.Given() {
					args.B, args.TransB = p.b.Turned.Slice(1, to.from, to.rows), 0
				}
				args.T, kept = kept, device.Tensor{} // the first call makes what all of them make
				d.LowRankAdd(args)
			}
		}
		s.Release()
	}
}

// TurnAdapters stores B of every adapter among the parameters as [rank, rows] too, for generation: their values must not change any more.
func TurnAdapters(d *device.Device, params []*Param) {
	for _, p := range params {
		if p.Role != AdapterUp || len(p.Shape) != 2 {
			continue
		}
		rows, rank, size := p.Shape[0], p.Shape[1], p.Value.DType.Size()
		from, to := make([]byte, p.Value.Bytes()), make([]byte, p.Value.Bytes())
		d.Read(from, p.Value)
		for i := range rows {
			for k := range rank {
				copy(to[(k*rows+i)*size:][:size], from[(i*rank+k)*size:])
			}
		}
		p.Turned = d.Arena.Alloc(device.Parameters, p.Value.DType, rank, rows)
		d.Write(p.Turned, to)
	}
}

// stretch is columns of y that a product with rows from.. of B makes.
type stretch struct {
	y          device.Tensor
	from, rows int64
}

// stretches are the piece's columns of y [n, out here], in the order of B: one view [n, runs, rows of a run] where the
// runs are of one length and lie equally far apart, as those of query groups do, else a view a run.
func (p *branchPart) stretches(y device.Tensor) (all []stretch) {
	first, regular := p.runs[0], len(p.runs) > 1
	for i, run := range p.runs {
		all = append(all, stretch{y.Slice(1, p.from+run[0], run[2]), run[1], run[2]})
		regular = regular && run[2] == first[2] && run[1] == int64(i)*first[2] && run[0]-first[0] == int64(i)*(p.runs[1][0]-first[0])
	}
	if !regular {
		return all
	}
	runs := int64(len(p.runs))
	view := device.Strided(all[0].y.Data, y.DType, []int64{y.Shape[0], runs, first[2]}, []int64{y.Stride[0], p.runs[1][0] - first[0], 1})
	return []stretch{{view, 0, p.rows}}
}

// down is Scale·x·Aᵀ [n, rank].
func (b *branch) down(d *device.Device, s *device.Scope, x device.Tensor) device.Tensor {
	t := s.Alloc(x.DType, x.Shape[0], b.Rank)
	d.Matmul(device.MatmulArgs{C: t, A: x, B: b.a.Value, TransB: 1})
	b.scale(d, t)
	return t
}

// scale multiplies t [n, any] by Scale.
func (b *Branch) scale(d *device.Device, t device.Tensor) {
	if b.Scale == 1 {
		return
	}
	d.Scale(device.ScaleArgs{Out: t, X: t, By: float32(b.Scale)})
}

// addTo adds x to y, both [n, columns] with any distance between rows.
func addTo(d *device.Device, y, x device.Tensor) {
	d.DropoutAdd(device.DropoutAddArgs{Out: y, X: x, Residual: y})
}

// dropped is x after the branch's dropout, x itself where there is none.
func (ad *adapter) dropped(d *device.Device, h *Hooks, s *device.Scope, b *branch, x device.Tensor, row int64) device.Tensor {
	if b.Dropout == 0 || h == nil || h.Drop == nil {
		return x
	}
	out := s.Alloc(x.DType, x.Shape[0], x.Shape[1])
	h.Drop(false, out, x, AdapterPrefix+b.Name, b.Dropout, row, ad.first)
	return out
}

// backward adds the branches' part to dx [n, in here], and to the gradients of A, B and M; x and
// dy [n, out here] are rows of the pass from number row on. Gradients of frozen parameters are not made.
func (ad *adapter) backward(d *device.Device, h *Hooks, dx, dy, x device.Tensor, row int64) error {
	if ad == nil {
		return nil
	}
	for _, b := range ad.list {
		s := d.Arena.Scope(device.Activations)
		var err error
		if b.Magnitude {
			err = ad.magnitudeBackward(d, s, b, dy, x)
		} else {
			ad.branchBackward(d, h, s, b, dx, dy, x, row)
		}
		s.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (ad *adapter) branchBackward(d *device.Device, h *Hooks, s *device.Scope, b *branch, dx, dy, x device.Tensor, row int64) {
	// t = Scale·x·Aᵀ [rows, rank], which forward has kept if it could; dt = sum over the parts of dy·B, each
	// adding its gradient of B.
	n, in := x.Shape[0], ad.dropped(d, h, s, b, x, row)
	t := h.made(b)
	if !t.Given() && len(b.pieces) > 0 {
		t = b.down(d, s, in)
	}
	dt := s.Alloc(x.DType, n, b.Rank)
	for i, p := range b.pieces {
		du := p.columns(d, s, dy)
		if !p.b.Frozen {
			d.Matmul(device.MatmulArgs{C: p.b.Grad, A: du, B: t, TransA: 1, Accumulate: 1})
		}
		if i == 0 {
			d.Matmul(device.MatmulArgs{C: dt, A: du, B: p.b.Value})
			continue
		}
		more := s.Like(dt)
		d.Matmul(device.MatmulArgs{C: more, A: du, B: p.b.Value})
		addTo(d, dt, more)
	}
	// A rank without a part of this branch contributes zeros.
	if len(b.pieces) == 0 {
		d.Fill(dt, 0)
	}
	// The gradient of A, and dx += dt·A through the same dropout.
	b.scale(d, dt)
	weightGradient(d, Leaves{}, b.a, dt, in)
	if b.Dropout == 0 || h == nil || h.Drop == nil {
		d.LowRankAdd(device.LowRankAddArgs{Y: dx, X: dt, B: b.a.Value, Scale: 1})
		return
	}
	back := s.Alloc(dx.DType, n, dx.Shape[1])
	d.Matmul(device.MatmulArgs{C: back, A: dt, B: b.a.Value})
	h.Drop(true, back, back, AdapterPrefix+b.Name, b.Dropout, row, ad.first)
	addTo(d, dx, back)
}

// columns is the part's columns of dy [n, rows], in the order of B.
func (p *branchPart) columns(d *device.Device, s *device.Scope, dy device.Tensor) device.Tensor {
	if len(p.runs) == 1 {
		return dy.Slice(1, p.from+p.runs[0][0], p.rows)
	}
	out := s.Alloc(dy.DType, dy.Shape[0], p.rows)
	for _, from := range p.stretches(dy) {
		to := out.Slice(1, from.from, from.rows)
		if from.y.Rank == 3 {
			to = out.Reshape(from.y.Dims()...)
		}
		d.Copy(to, from.y)
	}
	return out
}

// Adapt adds low-rank branches (an adapter) to the layer. It must be called before the layer's
// parameters are allocated.
func (l *ColumnParallelLinear) Adapt(branches []Branch) {
	l.adapter = newAdapter(l.region, branches, l.parts(), false)
}

// Adapt adds low-rank branches, as ColumnParallelLinear.Adapt.
func (l *RowParallelLinear) Adapt(branches []Branch) {
	l.adapter = newAdapter(l.region, branches, l.parts(), true)
}

// Adapted reports whether the layer has branches. Its output is then more than one product, so
// that no activation may be fused into the product.
func (l *ColumnParallelLinear) Adapted() bool { return l.adapter != nil }

// StartMagnitudes sets the magnitudes of a new adapter from the weight, which must be loaded.
func (l *ColumnParallelLinear) StartMagnitudes(d *device.Device) error {
	return l.adapter.startMagnitudes(d)
}

// StartMagnitudes sets the magnitudes of a new adapter from the weight, which must be loaded.
func (l *RowParallelLinear) StartMagnitudes(d *device.Device) error {
	return l.adapter.startMagnitudes(d)
}
