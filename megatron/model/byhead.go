package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// backwardByHead is backward where query heads share keys and values and sums have leaves: every head has
// a gradient of its keys and values, and those of a group are added as a tree, over the ranks that
// share it too. All of these then have the complete gradient.
func (e alone) backwardByHead(p *Pass, c core, at attended, h, grads heads, do Tensor) error {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	tokens, groups, perGroup, width := h.q.Shape[0], c.groups, c.a.perGroup, c.a.channels
	apart := func(t Tensor) Tensor { // [tokens, heads, 1, d]
		return packed(p, s, t).Reshape(tokens, groups*perGroup, 1, width)
	}
	repeated := func(t Tensor) Tensor { // a group's key, or value, for each of its heads
		all := s.Alloc(t.DType, tokens, groups, perGroup, width)
		for i := range perGroup {
			p.D.Copy(all.Slice(2, i, 1), t)
		}
		return apart(all)
	}
	sums := s.Alloc(statsType(p), 2*groups, perGroup, tokens, width) // of keys, then of values
	byHead := func(i int64) Tensor {
		return device.Strided(sums.At(i*groups).Data, sums.DType, []int64{tokens, groups * perGroup, 1, width}, []int64{width, tokens * width, width, 1})
	}
	dq := s.Alloc(sums.DType, tokens, groups*perGroup, 1, width)
	p.D.AttentionBackward(device.AttentionBackwardArgs{DQ: dq, DK: byHead(0), DV: byHead(1), DO: apart(do),
		Forward: c.call(p, e.at, 0, apart(at.o), at.lse[0], heads{q: apart(h.q), k: repeated(h.k), v: repeated(h.v)})})
	p.D.Copy(grads.q, dq.Reshape(tokens, groups, perGroup, width))
	return c.addHeads(p, s, sums, grads)
}

// addHeads sets the gradients of keys and values from those of each head, [2·groups, heads, tokens, d].
func (c core) addHeads(p *Pass, s *device.Scope, sums Tensor, grads heads) error {
	groups, tokens, width := c.groups, sums.Shape[2], sums.Shape[3]
	all := s.Alloc(sums.DType, 2*groups, tokens, width)
	for i := range 2 * groups {
		mpu.AddTree(p.D, sums.At(i))
		p.D.Copy(all.At(i), sums.At(i).At(0))
	}
	if size(c.a.sharers) > 1 {
		if err := c.a.sharers.AllReduce(all, comm.Tree).Wait(); err != nil {
			return err
		}
	}
	for kv, to := range []Tensor{grads.k, grads.v} {
		from := device.Strided(all.At(int64(kv)*groups).Data, all.DType, []int64{tokens, groups, 1, width}, []int64{width, tokens * width, width, 1})
		p.D.Copy(to, from)
	}
	return nil
}

// leafOrder is the order of a QKV projection's columns here by leaves, each of which has equal parts of
// all queries, of their gates, and of all keys and values; of those of a shared group a rank counts
// its part. nil: heads have keys of their own, or leaves have complete groups, and they are in order.
func (p Parallel) leafOrder(m *spec.Model, mine share) [][2]int64 {
	if p.Leaves == 0 || m.NumAttentionHeads == m.NumQueryGroups || m.NumQueryGroups%p.Leaves == 0 {
		return nil
	}
	d := int64(m.KVChannels)
	queries, both := mine.perGroup*d, int64(m.KeyValues())*d
	keys := queries
	if m.OutputGate {
		keys += queries
	}
	part, parts := int64(0), int64(1)
	if mine.shared != nil {
		part, parts = int64(p.QuerySharers.Rank()), int64(p.QuerySharers.Size())
	}
	var kinds [3][][2]int64 // stretches of queries, gates, keys and values
	for group := range mine.groups {
		at := group * (keys + both)
		kinds[0] = append(kinds[0], [2]int64{at, queries})
		if m.OutputGate {
			kinds[1] = append(kinds[1], [2]int64{at + queries, queries})
		}
		kinds[2] = append(kinds[2], [2]int64{at + keys + both*part/parts, both / parts})
	}
	return p.byLeaf(kinds[:]...)
}

// leavesOf is the order of a projection's columns here by leaves, each of which has equal parts of all
// stretches of rows; nil without leaves.
func (p Parallel) leavesOf(rows [][2]int64) [][2]int64 {
	if p.Leaves == 0 {
		return nil
	}
	var kinds [][][2]int64
	at := int64(0)
	for _, r := range rows {
		kinds = append(kinds, [][2]int64{{at, r[1]}})
		at += r[1]
	}
	return p.byLeaf(kinds...)
}

// byLeaf orders columns here by leaf: of each kind, stretches {first, n}, a leaf has an equal part.
func (p Parallel) byLeaf(kinds ...[][2]int64) (order [][2]int64) {
	leaves := int64(p.Leaves / p.TP.Size())
	for leaf := range leaves {
		for _, stretches := range kinds {
			order = append(order, stretchesOf(stretches, leaf, leaves)...)
		}
	}
	return order
}

// stretchesOf is the part'th of so many equal parts of the rows of all stretches {first, n} together.
func stretchesOf(stretches [][2]int64, part, parts int64) (some [][2]int64) {
	total := int64(0)
	for _, s := range stretches {
		total += s[1]
	}
	from, to, at := part*total/parts, (part+1)*total/parts, int64(0)
	for _, s := range stretches {
		first, end := max(from, at), min(to, at+s[1])
		if first < end {
			some = append(some, [2]int64{s[0] + first - at, end - first})
		}
		at += s[1]
	}
	return some
}
