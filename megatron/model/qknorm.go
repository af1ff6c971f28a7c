package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// qkNorm is the norm of queries, or of keys: of each head, or of all heads of a token
// as one row.
type qkNorm struct {
	*norm
	row *headRow // nil: each head

	unit bool // without weights: gamma is not a parameter, but 1

	// With leaves, of keys that another rank has too, which adds the gradient of the weights.
	counted bool
}

// unitNorm divides each head by its root mean square.
func unitNorm(m *spec.Model) *qkNorm {
	n := newNorm(m, "", m.KVChannels)
	n.gamma.Frozen, n.onePlus = true, 0
	return &qkNorm{norm: n, unit: true}
}

// ones makes the weights of a unitNorm.
func (n *qkNorm) ones(d *device.Device, dtype device.DType) {
	n.gamma.Value = d.Arena.Alloc(device.Parameters, dtype, n.gamma.Shape...)
	d.Fill(n.gamma.Value, 1)
}

// headRow is the row of a token that the heads of all ranks make together. Where
// query groups are fewer than ranks, ranks have the same keys: a rank joins those of
// the ranks that have its number among their sharers. Of these keys' gradients it
// then has the same share everywhere in the row, and all is linear in them.
type headRow struct {
	region  mpu.Region
	sharers int64 // ranks with the same heads
}

// newQKNorms makes both norms of a layer.
func newQKNorms(m *spec.Model, name string, p Parallel) (q, k *qkNorm) {
	wideQ, wideK := m.QKNormWidths()
	q, k = &qkNorm{norm: newNorm(m, name+".q_layernorm", wideQ)}, &qkNorm{norm: newNorm(m, name+".k_layernorm", wideK)}
	if m.QKNormFull {
		q.row, k.row = &headRow{region: mpu.Region{Group: p.TP}, sharers: 1}, &headRow{region: mpu.Region{Group: p.TP}, sharers: p.sharers(m)}
		q.shared(p, nil)
		k.shared(p, p.QuerySharers)
		return q, k
	}
	for _, w := range append(q.params(), k.params()...) { // each rank's heads give a part of their gradients
		w.Role, w.ByHead = mpu.QKNorm, true
		w.PartialOn(p.region())
	}
	k.counted = p.Leaves > 0 && size(p.QuerySharers) > 1 && p.QuerySharers.Rank() > 0
	return q, k
}

// sharers is how many ranks have the same keys and values.
func (p Parallel) sharers(m *spec.Model) int64 {
	return int64(max(1, p.TP.Size()/m.NumQueryGroups))
}

// shared marks the weights of a norm of which every rank computes all rows; parts are the
// ranks whose gradients are not the same, but add up.
func (n *qkNorm) shared(p Parallel, parts *comm.Group) {
	for _, w := range n.params() {
		w.Role = mpu.QKNorm
		w.Outside(mpu.Region{Group: p.TP})
		if n.row.sharers > 1 && p.Leaves == 0 { // with leaves all have the complete gradient
			w.SumOver = parts
		}
	}
}

// forward sets y = norm(x), both [tokens, groups, heads, d] of the heads here.
func (n *qkNorm) forward(p *Pass, s *device.Scope, y, x Tensor) (normSaved, error) {
	if n.row == nil {
		return n.norm.forward(p, s, y, x), nil
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	row, err := n.row.join(p, tmp, x)
	if err != nil {
		return normSaved{}, err
	}
	normed := tmp.Like(row)
	saved := n.norm.forward(p, s, normed, row)
	p.D.Copy(y, n.row.own(normed, y.Dims()))
	return saved, nil
}

// backward sets dx = norm'(x)·dy.
func (n *qkNorm) backward(p *Pass, saved normSaved, dx, dy, x Tensor) error {
	// The weights' gradient of keys that another rank has too goes to memory that nobody reads: the other
	// rank adds it.
	if n.row == nil && n.counted {
		s := p.D.Arena.Scope(device.Activations)
		defer s.Release()
		aside := []Tensor{s.Alloc(statsType(p), n.gamma.Shape...), {}}
		if n.beta != nil {
			aside[1] = s.Alloc(statsType(p), n.beta.Shape...)
		}
		n.backwardRows(p, saved, dx, dy, x, Tensor{}, aside, mpu.Leaves{})
		return nil
	}
	if n.row == nil {
		n.norm.backward(p, saved, dx, dy, x, Tensor{})
		return nil
	}
	// The norm's row is made of all ranks' heads: join x and dy to [tokens, width], then keep the columns of
	// the heads here.
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	row, err := n.row.join(p, tmp, x)
	if err != nil {
		return err
	}
	drow, err := n.row.join(p, tmp, dy)
	if err != nil {
		return err
	}
	n.norm.backward(p, saved, drow, drow, row, Tensor{})
	p.D.Copy(dx, n.row.own(drow, dx.Dims()))
	return nil
}

// join is x [tokens, groups, heads, d] of all ranks, concatenated: [tokens, width].
func (r *headRow) join(p *Pass, s *device.Scope, x Tensor) (Tensor, error) {
	own := s.Like(x)
	p.D.Copy(own, x)
	tokens, n := x.Shape[0], x.Len()/x.Shape[0]
	own = own.Reshape(tokens, n)
	size := int64(r.region.Size())
	if size == 1 {
		return own, nil
	}
	all := s.Alloc(x.DType, tokens, size*n)
	if err := mpu.GatherFromRegionForward(r.region, p.D, all, own); err != nil || r.sharers == 1 {
		return all, err
	}
	once := s.Alloc(x.DType, tokens, size/r.sharers*n)
	mine := all.Slice(1, int64(r.region.Rank())%r.sharers*n, n)
	p.D.Copy(once.Reshape(tokens, size/r.sharers, n), device.Strided(mine.Data, x.DType, []int64{tokens, size / r.sharers, n}, []int64{size * n, r.sharers * n, 1}))
	return once, nil
}

// own views the columns of a complete row that are this rank's, as its heads.
func (r *headRow) own(row Tensor, heads []int64) Tensor {
	n := heads[1] * heads[2] * heads[3]
	at := row.Slice(1, int64(r.region.Rank())/r.sharers*n, n)
	return device.Strided(at.Data, row.DType, heads, []int64{row.Stride[0], heads[2] * heads[3], heads[3], 1})
}
