package mpu

import (
	"math"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Prefixes of a checkpoint's tensors of FP8Delayed, before the name of a layer: the scales f32 [3] of its input, weight
// and gradient, and the histories f32 [3, Length] that they follow from.
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
	seen    device.Tensor // f32 [numbers]: largest magnitudes of the step
	scale   device.Tensor // f32 [numbers]
	history device.Tensor // f32 [numbers of this rank, Length], the oldest first
}

// Operands of a layer, in the order of a table's numbers.
const (
	fp8Input = iota
	fp8Weight
	fp8Gradient
	fp8Operands
)

// scaling is a layer's part of the tables: numbers at + operand. Its values are set by Prepare.
type scaling struct {
	name   string
	format [fp8Operands]int32
	at     int64
	seen   [fp8Operands]device.Tensor // f32 [1]
	scale  [fp8Operands]device.Tensor
}

// add makes the numbers of a layer, whose gradients have that format.
func (t *Delayed) add(name string, gradients int32) *scaling {
	l := &scaling{name: name, format: [...]int32{fp8Input: device.E4M3, fp8Weight: device.E4M3, fp8Gradient: gradients}, at: int64(len(t.layers)) * fp8Operands}
	t.layers = append(t.layers, l)
	return l
}

// empty reports whether no layer has scales here.
func (t *Delayed) empty() bool { return t == nil || len(t.layers) == 0 }

// Prepare allocates the tables of all layers: scales are 1, histories 0.
func (t *Delayed) Prepare(d *device.Device) {
	if t.empty() {
		return
	}
	n := int64(len(t.layers)) * fp8Operands
	t.device = d
	t.seen, t.scale = d.Arena.Zeroed(device.Parameters, device.F32, n), d.Arena.Alloc(device.Parameters, device.F32, n)
	t.history = d.Arena.Zeroed(device.Parameters, device.F32, n, int64(t.Length))
	d.Fill(t.scale, 1)
	for _, l := range t.layers {
		for i := range int64(fp8Operands) {
			l.seen[i], l.scale[i] = t.seen.Slice(0, l.at+i, 1), t.scale.Slice(0, l.at+i, 1)
		}
	}
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
		for i, format := range l.format {
			n := int(l.at) + i
			scales[n] = t.next(scales[n], histories[n*t.Length:][:t.Length], seen[n], format)
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
// same.
func (t *Delayed) Stored(write bool) (all []Stored) {
	if t.empty() {
		return nil
	}
	for _, l := range t.layers {
		scale, history := []int64{fp8Operands}, []int64{fp8Operands, int64(t.Length)}
		all = append(all,
			Stored{Name: StoredFP8Scale + l.name, Global: scale, Tensor: t.scale.Slice(0, l.at, fp8Operands), Pieces: []Piece{{From: []int64{0}, Size: scale}}, Write: write},
			Stored{Name: StoredFP8History + l.name, Global: history, Tensor: t.history.Slice(0, l.at, fp8Operands), Pieces: []Piece{{From: []int64{0, 0}, Size: history}}, Write: write})
	}
	return all
}
