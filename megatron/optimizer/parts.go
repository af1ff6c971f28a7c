package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// part is a stretch of a bucket's shard whose state is of one sort: parameters in a row. A
// bucket's parts cover its shard.
type part struct {
	stretch // of the shard
	sort
	start int64 // of offloaded state: where the part begins in each strip

	main, m, v device.Tensor // [n]; main is the values in f32 training
	codes      coded8        // given: instead of m and v
}

// sort is what parameters of one part have in common.
type sort struct {
	away   bool // state is offloaded
	matrix bool // it is updated by Muon, which keeps one moment, or with one of each element two
	coded  bool // its moments are codes
}

// divide says of which sort the state of each bucket is: all of it here or offloaded, or with a
// Fraction each parameter's in one of the two; matrices of Muon apart.
func (o *Optimizer) divide(e Offloaded) {
	gone := map[*mpu.Param]bool{}
	if e.Packed != nil { // state stays here
		e.Store = nil
	}
	some := e.Store != nil && e.Fraction > 0 && e.Fraction < 1
	for _, f := range o.families {
		if some {
			o.leaving(f, e.Fraction, gone)
		}
	}
	start := int64(0)
	for _, b := range o.buckets {
		b.parts = b.divided(func(p *mpu.Param) sort {
			if b.frozen {
				return sort{}
			}
			return sort{away: gone[p] || e.Store != nil && !some, matrix: o.orthogonal(p), coded: o.config.coded(p)}
		})
		for i := range b.parts {
			if p := &b.parts[i]; p.away {
				p.start = start
				start += roundUp(p.n, pageElements)
			}
		}
	}
}

// leaving adds those of a family's parameters whose state is offloaded, by the rule of Megatron-LM's
// HybridDeviceOptimizer: in the order of the optimizer's groups, until what is gone has the
// fraction of this rank's elements. The one that crosses the mark goes too.
func (o *Optimizer) leaving(f *family, fraction float64, gone map[*mpu.Param]bool) {
	mine, total := map[*mpu.Param]int64{}, int64(0)
	for _, b := range o.buckets {
		for i, p := range b.params {
			if b.family == f && !b.frozen {
				mine[p] = b.mine(i).n
				total += mine[p]
			}
		}
	}
	mark, left := fraction*float64(total), int64(0)
	for _, p := range o.inGroups(f.trained) {
		if float64(left) < mark && mine[p] > 0 {
			gone[p] = true
			left += mine[p]
		}
	}
}

// inGroups sorts parameters by what they are updated with: groups in the order in which each
// appears first, in a group the order of the model.
func (o *Optimizer) inGroups(params []*mpu.Param) (sorted []*mpu.Param) {
	type group struct {
		decay float32
		apart bool
	}
	var order []group
	members := map[group][]*mpu.Param{}
	for _, p := range params {
		g := group{o.decay(p), o.decoupled(p)}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], p)
	}
	for _, g := range order {
		sorted = append(sorted, members[g]...)
	}
	return sorted
}

// divided are the parts of a bucket; what fills the shard up belongs to the parameter before it.
func (b *bucket) divided(of func(*mpu.Param) sort) (parts []part) {
	for i, p := range b.params {
		mine, k := b.mine(i), len(parts)
		if mine.n == 0 || k > 0 && parts[k-1].sort == of(p) {
			continue
		}
		from := int64(0)
		if k > 0 {
			from = mine.from - b.own.from
			parts[k-1].n = from - parts[k-1].from
		}
		parts = append(parts, part{stretch: stretch{from, 0}, sort: of(p)})
	}
	if len(parts) == 0 { // this rank has nothing of its parameters
		parts = []part{{sort: of(b.params[0])}}
	}
	last := &parts[len(parts)-1]
	last.n = b.own.n - last.from
	return parts
}

// partOf is the part that has an element of the shard.
func (b *bucket) partOf(element int64) *part {
	for i := range b.parts {
		if p := &b.parts[i]; element < p.from+p.n {
			return p
		}
	}
	return &b.parts[len(b.parts)-1] // of a parameter that is not in the shard
}

// elements of the bucket's parts that are asked for.
func (b *bucket) elements(asked func(part) bool) (n int64) {
	for _, p := range b.parts {
		if asked(p) {
			n += b.trained(p.n)
		}
	}
	return n
}

// kinds are the strips of an optimizer's state of each element, here or offloaded; nil:
// it does not keep that kind.
type kinds struct {
	mains, ms, vs *strip
	codes         *codeStrips
	second        func(part) bool // whether a part has f32 second moments
}

// cut gives a part its tensors.
func (k kinds) cut(b *bucket, p *part) {
	p.main = b.ownValues.Slice(0, p.from, p.n)
	if b.frozen {
		return
	}
	if p.coded {
		p.codes = k.codes.next(p.n)
	} else {
		p.m = k.ms.next(p.n)
	}
	if k.second(*p) {
		p.v = k.vs.next(p.n)
	}
	if k.mains != nil {
		p.main = k.mains.next(p.n)
	}
}
