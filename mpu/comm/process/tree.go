package process

import (
	"unsafe"

	"monotron/mpu/comm/reduce"
)

// Groups of more than treeFrom ranks carry small values along a tree, so that a rank of 10,000
// has 14 connections for them and not 10,000: what the ranks of a subtree bring goes up in
// one message, what is for them comes down. Sums are still made in rank order, by the root.
const treeFrom = 8

// tree is a rank's position in the binomial tree over a group whose root is `root`: positions
// count from the root. The subtree of position p are the positions from p to p + its lowest
// bit, so that it is a run, in order.
type tree struct {
	size, root int
	at         int // this rank's position
}

func (g *group) tree(root int) tree {
	return tree{g.Size(), root, (g.Rank - root + g.Size()) % g.Size()}
}

// wide reports whether n bytes a rank travel along a tree.
func (g *group) wide(n int) bool { return g.Size() > treeFrom && n <= small }

// member is the number in the group of a position, and the reverse.
func (t tree) member(position int) int { return (position + t.root) % t.size }

// span is how many positions the subtree of one has.
func (t tree) span(position int) int {
	n := t.size
	if position > 0 {
		n = position & -position
	}
	return min(n, t.size-position)
}

// parent is the position above this rank's, which is not the root's.
func (t tree) parent() int { return t.at & (t.at - 1) }

// children are the positions below this rank's, ascending.
func (t tree) children() (list []int) {
	for step := 1; step < t.span(t.at); step *= 2 {
		list = append(list, t.at+step)
	}
	return list
}

// up brings n bytes of every rank to the root, whose `all` has them by position; then is
// called there. own are this rank's. The caller holds the lock.
func (o *operation) up(at tree, own []byte, then func(all []byte)) {
	n := len(own)
	bundle := staging(int64(at.span(at.at) * n))
	copy(bundle, own)
	for _, child := range at.children() {
		from := (child - at.at) * n
		o.recvFrom(at.member(child), bundle[from:from+at.span(child)*n])
	}
	if at.at == 0 {
		o.then[0] = func() { then(bundle) }
		return
	}
	o.then[0] = o.locked(func() { o.send(1, at.member(at.parent()), o.call, partBrought, bundle) })
}

// down has the root's bytes come to all. The root calls it once they are there; others before,
// and dst has them when the stage is over.
func (o *operation) down(at tree, dst []byte) {
	pass := func() {
		for _, child := range at.children() {
			o.send(2, at.member(child), o.call, partResult, dst)
		}
	}
	if at.at > 0 {
		o.expect(1, at.member(at.parent()), o.call, partResult, dst)
	}
	o.then[1] = o.locked(pass)
}

// treeReduce sums everybody's bytes, in rank order: the tree's root is rank 0.
func (o *operation) treeReduce(all []byte) {
	if len(all) == 0 {
		o.treeBarrier()
		return
	}
	at, c := o.group.tree(0), o.call
	o.up(at, all, func(brought []byte) {
		m := reduce.Move{N: int64(len(all)) / c.DType.Size(), DType: c.DType, Reduce: c.Reduce, To: []unsafe.Pointer{unsafe.Pointer(&all[0])}}
		for i := range at.size {
			m.From = append(m.From, unsafe.Pointer(&brought[i*len(all)]))
		}
		reduce.Carry(o.group.world.pool, []reduce.Move{m})
	})
	o.down(at, all)
}

// treeGather brings everybody's bytes to the root, by member; to all of the group where it is
// everybody's.
func (o *operation) treeGather(root int, own, out []byte, everybody bool) {
	at := o.group.tree(root)
	o.up(at, own, func(brought []byte) {
		first := (at.size - root) % at.size * len(own) // the bytes of member 0
		copy(out, brought[first:])
		copy(out[len(brought)-first:], brought[:first])
	})
	if everybody {
		o.down(at, out)
	}
}

// treeBarrier is a tree of no bytes.
func (o *operation) treeBarrier() {
	at := o.group.tree(0)
	o.up(at, nil, func([]byte) {})
	o.down(at, nil)
}
