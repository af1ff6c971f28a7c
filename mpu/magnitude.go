package mpu

import (
	"math"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// What DoRA adds to a linear layer: branches with a magnitude are in the weight that the layer
// multiplies by, which is made again for every pass.

// scaled is V = W + Scale·B·A of a part's rows, f32 [rows, in here], with the norm of each row over
// all columns, wherever they are.
type scaled struct {
	v     device.Tensor
	norms []float32
}

func (ad *adapter) sum(d *device.Device, s *device.Scope, b *branch, p *branchPart) (out scaled, err error) {
	width := p.of.Shape[1]
	out.v = s.Alloc(exact(p.of.Value), p.rows, width)
	for _, run := range p.runs {
		d.Copy(out.v.Slice(0, run[1], run[2]), p.of.Value.Slice(0, run[0], run[2]))
	}
	ba := s.Like(out.v)
	d.Matmul(device.MatmulArgs{C: ba, A: p.b.Value, B: b.a.Value})
	b.scale(d, ba)
	d.Add(out.v, out.v, ba)
	s.Free(ba)
	squares := s.Alloc(device.F32, p.rows)
	d.RowDots(squares, out.v, out.v)
	if ad.rowParallel {
		if err := ad.region.AllReduce(squares, comm.Sum).Wait(); err != nil {
			return out, err
		}
	}
	out.norms = make([]float32, p.rows)
	if !d.Counts() {
		out.norms = device.ReadSlice[float32](d, squares)
	}
	for i, square := range out.norms {
		out.norms[i] = float32(math.Sqrt(float64(square)))
	}
	return out, d.Err()
}

// exact is the dtype of sums of a weight's dtype.
func exact(t device.Tensor) device.DType {
	if t.DType == device.F64 {
		return device.F64
	}
	return device.F32
}

// factors are M over the norms, or 1 over them where inverse is set, f32 [rows].
func (v *scaled) factors(d *device.Device, s *device.Scope, m device.Tensor, inverse bool) device.Tensor {
	out := s.Alloc(device.F32, int64(len(v.norms)))
	wide := s.Alloc(device.F32, m.Dims()...)
	d.Copy(wide, m)
	if d.Counts() {
		return out
	}
	values := device.ReadSlice[float32](d, wide)
	for i, norm := range v.norms {
		if inverse {
			values[i] = 1
		}
		if values[i] /= norm; norm == 0 { // a row of zeros stays one
			values[i] = 0
		}
	}
	device.WriteSlice(d, out, values)
	return out
}

// weights are the parts as the layer multiplies by them: those with magnitudes are made in s.
func (ad *adapter) weights(d *device.Device, s *device.Scope, parts []part) ([]part, error) {
	if ad == nil {
		return parts, nil
	}
	for i := range parts {
		var made *Param
		for _, b := range ad.list {
			for j := range b.pieces {
				p := &b.pieces[j]
				if p.m == nil || p.of != parts[i].weight {
					continue
				}
				if made == nil {
					made = &Param{Name: p.of.Name, Shape: p.of.Shape, Frozen: true, Value: s.Like(p.of.Value)}
					d.Copy(made.Value, p.of.Value)
				}
				if err := ad.apply(d, b, p, made.Value); err != nil {
					return nil, err
				}
			}
		}
		if made != nil {
			parts[i].weight = made
		}
	}
	return parts, nil
}

// apply writes the branch's rows of the weight.
func (ad *adapter) apply(d *device.Device, b *branch, p *branchPart, weight device.Tensor) error {
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	v, err := ad.sum(d, s, b, p)
	if err != nil {
		return err
	}
	d.ScaleRows(v.v, v.v, v.factors(d, s, p.m.Value, false))
	for _, run := range p.runs {
		d.Copy(weight.Slice(0, run[0], run[2]), v.v.Slice(0, run[1], run[2]))
	}
	return nil
}

// magnitudeBackward adds to the gradients of A, B and M: with G = dyᵀ·x and the norms as
// constants, dM = Σ G∘V / norm, and M/norm ∘ G is the gradient of V.
func (ad *adapter) magnitudeBackward(d *device.Device, s *device.Scope, b *branch, dy, x device.Tensor) error {
	for i := range b.pieces {
		p := &b.pieces[i]
		v, err := ad.sum(d, s, b, p)
		if err != nil {
			return err
		}
		g := s.Like(v.v)
		d.Matmul(device.MatmulArgs{C: g, A: p.columns(d, s, dy), B: x, TransA: 1})
		if !p.m.Frozen {
			dots := s.Alloc(device.F32, p.rows, 1)
			d.RowDots(dots.Reshape(p.rows), g, v.v)
			d.ScaleRows(dots, dots, v.factors(d, s, p.m.Value, true))
			d.Add(p.m.Grad, p.m.Grad, dots.Reshape(p.rows))
		}
		d.ScaleRows(g, g, v.factors(d, s, p.m.Value, false))
		b.scale(d, g)
		a, wide := s.Alloc(g.DType, b.a.Shape...), s.Alloc(g.DType, p.b.Shape...)
		d.Copy(a, b.a.Value)
		d.Copy(wide, p.b.Value)
		if !p.b.Frozen {
			d.Matmul(device.MatmulArgs{C: p.b.Grad, A: g, B: a, TransB: 1, Accumulate: 1})
		}
		weightGradient(d, Leaves{}, b.a, wide, g)
	}
	return nil
}

// startMagnitudes sets M to the norms of W + Scale·B·A, so that the adapter begins as no change.
func (ad *adapter) startMagnitudes(d *device.Device) error {
	if ad == nil {
		return nil
	}
	for _, b := range ad.list {
		for i := range b.pieces {
			p := &b.pieces[i]
			if p.m == nil {
				continue
			}
			s := d.Arena.Scope(device.Activations)
			v, err := ad.sum(d, s, b, p)
			if err == nil && !d.Counts() {
				norms := s.Alloc(device.F32, p.rows)
				device.WriteSlice(d, norms, v.norms)
				d.Copy(p.m.Value, norms)
			}
			if s.Release(); err != nil {
				return err
			}
		}
	}
	return nil
}
