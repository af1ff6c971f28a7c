package mpu

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// InitKind says how a parameter starts.
type InitKind int

const (
	InitNormal     InitKind = iota // mean 0, standard deviation Std
	InitConstant                   // Value everywhere
	InitUniform                    // within ±Value
	InitLogUniform                 // logarithms of numbers uniform from 1 to Value
	InitTimeStep                   // softplus of it is uniform by its logarithm from Value/100 to Value
)

// Init is a parameter's start.
type Init struct {
	Kind  InitKind
	Std   float64
	Value float64
}

// Family is parameters that lie on the same ranks; each has gradients of its own
// group of ranks to sum, its own buckets and its own share of the norm.
type Family int

const (
	Dense   Family = iota // uncut, or cut over tensor-parallel ranks, on every data-parallel rank
	Experts               // cut over expert-parallel ranks, which are data-parallel for the rest
)

// Role is what an optimizer's settings single out.
type Role int

const (
	Plain      Role = iota
	Vocabulary      // word embedding and output layer (--decoupled-lr)
	AdapterUp       // an adapter's B (--loraplus-lr-ratio)
	QKNorm          // norms of queries and keys (--apply-wd-to-qk-layernorm)
)

// Param is one parameter tensor as this rank holds it.
type Param struct {
	Name   string  // Megatron's, with the global layer number
	Global []int64 // shape of the global tensor
	Shape  []int64 // of the local part; rows beyond the pieces are padding
	Pieces []Piece
	Init   Init
	// Each names slice i of the first dimension of Global, which files keep as a tensor of its own; nil: files
	// keep Global.
	Each func(i int64) string

	Family  Family
	Role    Role
	Unit    string   // what uses the parameter together with others, and is gathered and freed with them: decoder.layers.3
	QKV     [3]int64 // rows of Q, K and V of each query group, which Muon updates as matrices of their own; zeros: it is one
	Head    int64    // rows of each head of such a weight, which Muon can update as matrices of their own; 0: it has none
	Gated   bool     // the first half of the rows is a gate's, the second the values' it multiplies; Muon can update them as two matrices
	Tile    bool     // a part of a weight that comes and goes by itself (tiles.go)
	Strips  bool     // products read it through byRows and byColumns alone, so that it may be unpacked in stretches (packed.go)
	Frozen  bool     // not trained: it has neither gradient nor optimizer state
	ByToken bool     // a table indexed by tokens: rows are added to its gradient one by one
	ByHead  bool     // a norm of heads: leaves of its gradient are of a head each
	NoDecay bool     // biases and norms: no weight decay
	Uneven  bool     // ranks of a model hold different numbers of its rows
	OwnClip bool     // clipped by the norm of all gradients that have this, apart from the others' (--mtp-detach-heads)

	Owner    bool        // of all ranks of a model with these values, the one that saves them and counts them in norms
	Replicas *comm.Group // ranks of a model that hold the same values; nil: this one
	SumOver  *comm.Group // ranks of a model whose gradients are partial sums; nil: none

	Value device.Tensor // what forward and backward read, value dtype
	// Turned is Value [rows, columns] stored as [columns, rows], which products with few rows read faster: of B of an adapter that is
	// not trained any more. Not given: there is none.
	Turned device.Tensor
	// Unpack fills dst with rows and columns {first, number} of a weight that lies packed in memory while Value is not
	// given (packed.go); nil: Value is given where it is used.
	Unpack func(dst device.Tensor, rows, columns [2]int64) error
	Main   device.Tensor // f32 main parameter; Value itself in f32 training
	Grad   device.Tensor // f32 main gradient; f64 where it is a sum on a grid

	Grid device.Tensor // f64 [1]: its unit, a power of two; not given: gradients are added as they come
	Peak device.Tensor // f32 [1]: the largest magnitude of the values added in this step, of each leaf

	tiles [][]*tile // by rows: what stands for the parameter, which then has no memory; nil: it is uncut
}

// Uncut makes a parameter that this rank holds entirely.
func Uncut(name string, init Init, shape ...int64) *Param {
	return &Param{
		Name: name, Global: shape, Shape: shape, Init: init, Owner: true, NoDecay: len(shape) == 1,
		Pieces: []Piece{{From: make([]int64, len(shape)), Size: shape}},
	}
}

// Outside marks p as one that lies outside the region: every rank holds it.
// Under sequence parallelism each saw its own positions, so gradients are partial.
func (p *Param) Outside(r Region) {
	if r.Size() == 1 {
		return
	}
	p.Owner, p.Replicas = r.Rank() == 0, r.Group
	if r.Sequence {
		p.SumOver = r.Group
	}
}

// PartialOn marks p as present on every rank of r, each with a partial gradient.
func (p *Param) PartialOn(r Region) {
	r.Sequence = true
	p.Outside(r)
}

// Rows makes a parameter whose pieces are stretches of rows of a global tensor,
// stacked locally in the given order. Each stretch is {first row, rows}; local
// may have more rows than that: padding. A stretch of no rows makes no piece.
func Rows(name string, init Init, global []int64, stretches [][2]int64, localRows int64) *Param {
	p := &Param{Name: name, Init: init, Global: global, Owner: true, NoDecay: len(global) == 1}
	p.Shape = append([]int64{localRows}, global[1:]...)
	width := int64(1)
	for _, n := range global[1:] {
		width *= n
	}
	at := int64(0)
	for _, s := range stretches {
		if s[1] == 0 {
			continue
		}
		from := make([]int64, len(global))
		from[0] = s[0]
		p.Pieces = append(p.Pieces, Piece{From: from, Size: append([]int64{s[1]}, global[1:]...), Local: at * width})
		at += s[1]
	}
	return p
}

// Len is the number of local elements, padding included.
func (p *Param) Len() int64 {
	n := int64(1)
	for _, s := range p.Shape {
		n *= s
	}
	return n
}

func (p *Param) String() string { return fmt.Sprintf("%s%v", p.Name, p.Shape) }

// Allocate gives params their memory: values of dtype, and where grads is set
// f32 main gradients, each kind in one buffer in the order given, parts aligned
// to 64 elements. In f32 Main is Value; else it gets its own buffer.
func Allocate(d *device.Device, params []*Param, dtype device.DType, grads bool) (gradBuffer device.Tensor) {
	allocate(d, device.Parameters, params, dtype, func(p *Param, t device.Tensor) { p.Value = t })
	for _, p := range params {
		p.Main = p.Value
	}
	if !grads {
		return device.Tensor{}
	}
	if dtype != device.F32 && dtype != device.F64 {
		allocate(d, device.Optimizer, params, device.F32, func(p *Param, t device.Tensor) { p.Main = t })
	}
	gradType := device.F32
	if dtype == device.F64 {
		gradType = device.F64
	}
	return allocate(d, device.MainGradients, params, gradType, func(p *Param, t device.Tensor) { p.Grad = t })
}

// allocate cuts one buffer into the params' tensors, aligned to 64 elements.
func allocate(d *device.Device, purpose device.Purpose, params []*Param, dtype device.DType, give func(*Param, device.Tensor)) device.Tensor {
	const align = 64 // elements
	total := int64(0)
	at := make([]int64, len(params))
	for i, p := range params {
		at[i] = total
		total += (p.Len() + align - 1) / align * align
	}
	buffer := d.Arena.Zeroed(purpose, dtype, max(1, total))
	for i, p := range params {
		give(p, buffer.Slice(0, at[i], p.Len()).Reshape(p.Shape...))
	}
	return buffer
}

// Stored is a tensor that a checkpoint keeps: a buffer and its position in a
// global tensor. Name carries a prefix for its kind, such as
// "optimizer.exp_avg.".
type Stored struct {
	Name   string
	Global []int64
	Tensor device.Tensor // contiguous local buffer
	Pieces []Piece
	Write  bool // this rank writes it; every rank reads
}

// Stored lists p's tensor t (its value, main parameter or a moment) under a prefix: elements
// [from, from+t.Len()) of the local buffer.
func (p *Param) Stored(prefix string, t device.Tensor, from int64, write bool) []Stored {
	full := Stored{Name: prefix + p.Name, Global: p.Global, Tensor: t, Pieces: p.Pieces, Write: write}
	if t.Len() < p.Len() {
		full.Pieces = Stretch(p.Pieces, from, t.Len())
	}
	if p.Each == nil {
		return []Stored{full}
	}
	all := full.slices(func(i int64) string { return prefix + p.Each(i) })
	for i := range all {
		all[i].narrow()
	}
	return all
}

// Tensors lists the tensors that files keep of p, with their pieces of its local buffer.
func (p *Param) Tensors() []Stored {
	full := Stored{Name: p.Name, Global: p.Global, Pieces: p.Pieces}
	if p.Each == nil {
		return []Stored{full}
	}
	return full.slices(p.Each)
}

// slices are the slices of s along its first dimension.
func (s Stored) slices(name func(i int64) string) (all []Stored) {
	inner := Piece{Size: s.Global[1:]}
	by := map[int64]int{}
	for _, p := range s.Pieces {
		for i := p.From[0]; i < p.From[0]+p.Size[0]; i++ {
			at, ok := by[i]
			if !ok {
				at = len(all)
				by[i] = at
				all = append(all, Stored{Name: name(i), Global: inner.Size, Tensor: s.Tensor, Write: s.Write})
			}
			one := Piece{From: p.From[1:], Size: p.Size[1:], Local: p.Local}
			one.Local += (i - p.From[0]) * one.Len()
			all[at].Pieces = append(all[at].Pieces, one)
		}
	}
	return all
}

// narrow views the part of the buffer that the pieces lie in.
func (s *Stored) narrow() {
	from, to := s.Pieces[0].Local, int64(0)
	for _, p := range s.Pieces {
		from, to = min(from, p.Local), max(to, p.Local+p.Len())
	}
	s.Tensor = s.Tensor.Reshape(s.Tensor.Len()).Slice(0, from, to-from)
	for i := range s.Pieces {
		s.Pieces[i].Local -= from
	}
}
