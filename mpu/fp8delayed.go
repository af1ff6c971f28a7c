package mpu

import (
	"math"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Prefixes of a checkpoint's tensors of FP8Delayed, before the name of a layer: the scales f32 [3] of its input, weight
// and gradient, and the histories f32 [3, Length] that they follow from; of experts [3, experts] and [3, experts,
// Length].
const (
	StoredFP8Scale   = "optimizer.fp8_scale."
	StoredFP8History = "optimizer.fp8_amax_history."
)

// Delayed has the scales of FP8Delayed (Transformer Engine's DelayedScaling): those of a step follow from the largest
// magnitudes of the steps before. A step only measures; scales change at its end, so all passes of a step, also
// recomputed ones, round alike. A magnitude that is measured twice changes nothing.
type Delayed struct {
	Length          int  // magnitudes of a history (--fp8-amax-history-len)
	Largest         bool // of a history counts the largest one (--fp8-amax-compute-algo max); else the latest
	Margin          int  // scales are divided by 2^Margin
	WeightGradients bool // operands of products that make these are rounded (not with --no-fp8-wgrad)

	layers  []*scaling
	device  *device.Device
	seen    device.Tensor // f32 [numbers of all ranks]: largest magnitudes of the step
	scale   device.Tensor // f32 [numbers of all ranks]
	history device.Tensor // f32 [numbers of this rank, Length], the oldest first
}

// Operands of a layer, in the order of a table's numbers.
const (
	fp8Input = iota
	fp8Weight
	fp8Gradient
	fp8Operands
)

// scaling is a layer's part of the tables: a number for each operand, of experts for each operand one of each expert.
// Ranks that have other experts know their scales too, so that all measure in one table, but not their histories.
// Tensors are set by Prepare.
type scaling struct {
	name    string
	format  [fp8Operands]int32
	experts *ExpertShare               // nil: a layer without
	at      int64                      // in the tables of all ranks
	kept    int64                      // in that of this rank
	seen    [fp8Operands]device.Tensor // f32 [1], or of the experts here
	scale   [fp8Operands]device.Tensor

	weightRows int64         // of experts: rows of each one's weight
	weights    device.Tensor // i32 [experts here + 1]: where they begin, in the weights of all
}

// numbers are how many an operand has on all ranks, the first one here, and how many are here.
func (l *scaling) numbers() (all, first, here int64) {
	if l.experts == nil {
		return 1, 0, 1
	}
	return int64(l.experts.Experts), int64(l.experts.First), int64(l.experts.Here)
}

// index is where this rank's numbers of an operand begin in the tables of all ranks, and in its own.
func (l *scaling) index(operand int64) (at, kept int64) {
	all, first, here := l.numbers()
	return l.at + operand*all + first, l.kept + operand*here
}

// add makes the numbers of a layer, whose gradients have that format; experts nil: it has none.
func (t *Delayed) add(name string, gradients int32, experts *ExpertShare) *scaling {
	l := &scaling{name: name, format: [...]int32{fp8Input: device.E4M3, fp8Weight: device.E4M3, fp8Gradient: gradients}, experts: experts}
	l.at, l.kept = t.sizes()
	t.layers = append(t.layers, l)
	return l
}

// sizes are the numbers of all ranks and of this one.
func (t *Delayed) sizes() (all, here int64) {
	if len(t.layers) == 0 {
		return 0, 0
	}
	last := t.layers[len(t.layers)-1]
	n, _, own := last.numbers()
	return last.at + fp8Operands*n, last.kept + fp8Operands*own
}

// empty reports whether no layer has scales here.
func (t *Delayed) empty() bool { return t == nil || len(t.layers) == 0 }

// Prepare allocates the tables of all layers: scales are 1, histories 0.
func (t *Delayed) Prepare(d *device.Device) {
	if t.empty() {
		return
	}
	all, here := t.sizes()
	t.device = d
	t.seen, t.scale = d.Arena.Zeroed(device.Parameters, device.F32, all), d.Arena.Alloc(device.Parameters, device.F32, all)
	t.history = d.Arena.Zeroed(device.Parameters, device.F32, here, int64(t.Length))
	d.Fill(t.scale, 1)
	for _, l := range t.layers {
		for i := range int64(fp8Operands) {
			at, _ := l.index(i)
			_, _, n := l.numbers()
			l.seen[i], l.scale[i] = t.seen.Slice(0, at, n), t.scale.Slice(0, at, n)
		}
		if l.experts != nil {
			l.prepareWeights(d)
		}
	}
}

// prepareWeights makes the offsets of the experts' weights.
func (l *scaling) prepareWeights(d *device.Device) {
	at := make([]int32, l.experts.Here+1)
	for i := range at {
		at[i] = int32(int64(i) * l.weightRows)
	}
	l.weights = d.Arena.Alloc(device.Parameters, device.I32, int64(len(at)))
	device.WriteSlice(d, l.weights, at)
}

// Begin forgets what was measured: a step follows.
func (t *Delayed) Begin() {
	if !t.empty() {
		t.device.Fill(t.seen, 0)
	}
}

// Update makes the scales of the next step from what this one measured on the ranks of the group, which have the same
// layers or parts of them. It is a collective.
func (t *Delayed) Update(group *comm.Group) error {
	if t.empty() {
		return nil
	}
	if group != nil && group.Size() > 1 {
		if err := group.AllReduce(t.seen, comm.Max).Wait(); err != nil {
			return err
		}
	}
	d := t.device
	seen, scales, histories := device.ReadSlice[float32](d, t.seen), device.ReadSlice[float32](d, t.scale), device.ReadSlice[float32](d, t.history)
	for _, l := range t.layers {
		for operand, format := range l.format {
			at, kept := l.index(int64(operand))
			_, _, here := l.numbers()
			for i := range here {
				history := histories[(kept+i)*int64(t.Length):][:t.Length]
				scales[at+i] = t.next(scales[at+i], history, seen[at+i], format)
			}
		}
	}
	device.WriteSlice(d, t.scale, scales)
	device.WriteSlice(d, t.history, histories)
	return d.Sync()
}

// next takes the largest magnitude of a step in its history, and is the scale of the next step. A magnitude of 0 was
// not measured, or says nothing. As in Transformer Engine, histories may have numbers that are not finite, from which
// no scale is made; the largest of them is that of those that are numbers.
func (t *Delayed) next(scale float32, history []float32, most float32, format int32) float32 {
	if most == 0 {
		return scale
	}
	copy(history, history[1:])
	history[len(history)-1] = most
	if t.Largest {
		most = 0
		for _, m := range history {
			if m > most {
				most = m
			}
		}
	}
	if !(most > 0) || most > math.MaxFloat32 {
		return scale
	}
	limit := float32(math.Ldexp(fp8Limits[format], -t.Margin))
	return min(limit/most, math.MaxFloat32)
}

// fp8Limits are the largest numbers of the formats.
var fp8Limits = [...]float64{device.E4M3: 448, device.E5M2: 57344}

// Stored lists the scales and the histories for a checkpoint. write: this rank writes them for those that have the
// same; writeExperts: those of its experts, for those that have the same part of them.
func (t *Delayed) Stored(write, writeExperts bool) (all []Stored) {
	if t.empty() {
		return nil
	}
	for _, l := range t.layers {
		n, first, here := l.numbers()
		_, kept := l.index(0)
		scale := Stored{Name: StoredFP8Scale + l.name, Global: []int64{fp8Operands}, Tensor: t.scale.Slice(0, l.at, fp8Operands*n), Write: write}
		history := Stored{Name: StoredFP8History + l.name, Global: []int64{fp8Operands, int64(t.Length)}, Tensor: t.history.Slice(0, kept, fp8Operands*here), Write: write}
		if l.experts == nil {
			scale.Pieces, history.Pieces = []Piece{{From: []int64{0}, Size: scale.Global}}, []Piece{{From: []int64{0, 0}, Size: history.Global}}
			all = append(all, scale, history)
			continue
		}
		scale.Write, scale.Global = writeExperts && l.experts.Part == 0, []int64{fp8Operands, n}
		history.Write, history.Global = scale.Write, []int64{fp8Operands, n, int64(t.Length)}
		for i := range int64(fp8Operands) {
			scale.Pieces = append(scale.Pieces, Piece{From: []int64{i, first}, Size: []int64{1, here}, Local: i*n + first})
		}
		history.Pieces = []Piece{{From: []int64{0, first, 0}, Size: []int64{fp8Operands, here, int64(t.Length)}}}
		all = append(all, scale, history)
	}
	return all
}
