package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// bucket is a stretch of a family's flat buffer whose gradients are reduced, and whose
// values are gathered, as one.
type bucket struct {
	plan
	family *family
	frozen bool    // values alone
	own    stretch // this rank's shard; the complete bucket where nothing is sharded
	parts  []part  // of the shard, by where their state lies

	values, grads       device.Tensor // [n]; not given while a rank has its shard alone
	ownValues, ownGrads device.Tensor // [own.n]: in the above where these always exist
	ownSums             device.Tensor // [own.n]: what ranks add up; ownGrads, or f64 on grids, of which these are read

	ready     map[*mpu.Param]bool // gradients that are complete
	reduced   bool                // this step's gradients
	reducing  comm.Work           // nil: not under way
	gathering comm.Work
	block     device.Tensor // what values that come and go lie in
	gradBlock device.Tensor // the same of gradients
	begun     bool          // offloaded gradients are this step's
	users     int           // uses under way of parameters that come and go
}

func newBucket(f *family, p plan, frozen bool) *bucket {
	n := p.n / int64(f.shards())
	return &bucket{plan: p, family: f, frozen: frozen, own: stretch{p.from + n*int64(f.shard()), n}, ready: map[*mpu.Param]bool{}}
}

// segment is the part of one parameter that this rank updates: elements
// [from, from+n) of its local buffer, each tensor [n].
type segment struct {
	param   *mpu.Param
	from, n int64
	start   int64 // where the segment begins in the bucket's shard
	at      int64 // of offloaded state: where the segment begins in its strip
	part    *part // that has it

	run   *run // that has it as its index-th segment; nil: frozen
	index int64

	value, main, grad device.Tensor // main is value in f32 training
	sum               device.Tensor // what ranks add up: grad, or f64 on a grid
	m, v              device.Tensor // moments, f32; SGD: momentum in m; not given: none
	codes             coded8        // moments of 8 bits
}

func (s *segment) hasMaster() bool { return s.main.Data != s.value.Data }

// allocate makes all memory that lasts, and binds parameters to it.
func (o *Optimizer) allocate(dtype device.DType, offloaded Offloaded) {
	for _, f := range o.families {
		trained, frozen := f.plans()
		for _, p := range trained {
			o.buckets = append(o.buckets, newBucket(f, p, false))
		}
		for _, p := range frozen {
			o.buckets = append(o.buckets, newBucket(f, p, true))
		}
	}
	wide := device.F32
	if dtype == device.F64 {
		wide = device.F64
	}
	o.allocateOffloaded(dtype, wide, offloaded)
	o.allocateValues(dtype)
	o.allocateGrads(wide)
	o.allocateState(dtype, wide)
	for _, p := range o.params { // in the order of the model, which is that of the norm's sum
		p.Main = p.Value // in f32; not there while the values are not
		s := o.shares[p]
		if s.n == 0 || p.Frozen {
			continue
		}
		o.segments = append(o.segments, s)
		if s.part.away {
			o.away.segments = append(o.away.segments, s)
		}
		if s.hasMaster() {
			p.Main = device.Tensor{}
			if s.n == p.Len() && !s.main.Offloaded() && !o.bucketOf[p].family.sharded() {
				p.Main = s.main.Reshape(p.Shape...)
			}
		}
	}
	o.counted = o.allCounted()
	o.matrices = o.allMatrices()
}

// allocateValues: all values, or under ZeRO-3 this rank's.
func (o *Optimizer) allocateValues(dtype device.DType) {
	values := o.strip(device.Parameters, dtype, func(b *bucket) int64 {
		if b.family.sharding.Offloaded.Parameters {
			return 0
		}
		return b.kept(b.family.sharding.transient())
	})
	for _, b := range o.buckets {
		switch {
		case b.family.sharding.Offloaded.Parameters && b.frozen:
			b.ownValues = o.away.frozen.next(b.own.n)
		case b.family.sharding.Offloaded.Parameters:
			b.ownValues = o.away.values.next(b.own.n)
		case b.family.sharding.transient():
			b.ownValues = values.next(b.own.n)
		default:
			b.values = values.next(b.n)
			b.ownValues = b.ours(b.values)
		}
		b.bindValues()
		o.bindUnpack(b)
	}
}

// bindUnpack lets products read packed parameters in stretches where this rank has all of them and the host makes the
// products.
func (o *Optimizer) bindUnpack(b *bucket) {
	if b.family.sharding.Offloaded.Packed == nil || b.family.sharded() || o.device.Apart() {
		return
	}
	for i, p := range b.params {
		if !p.Strips {
			continue
		}
		packed := b.view(i, b.ownValues)
		p.Unpack = func(dst device.Tensor, rows, columns [2]int64) error {
			return o.device.FetchBox(dst, packed, rows, columns)
		}
	}
}

// allocateGrads: all gradients, or under ZeRO-2 and 3 this rank's.
func (o *Optimizer) allocateGrads(wide device.DType) {
	// Sums on grids need f64; the update reads f32 copies of them, which allocateRead makes.
	summed := wide
	if o.exact != nil {
		summed = device.F64
	}
	grads := o.strip(device.MainGradients, summed, func(b *bucket) int64 {
		if b.family.sharding.Offloaded.Gradients {
			return 0
		}
		return b.trained(b.kept(b.family.sharding.shardsGradients()))
	})
	// grads: all of the bucket. ownSums, ownGrads: this rank's shard, summed and as the update reads it; they are
	// offloaded, memory of their own, or a view of grads.
	for _, b := range o.buckets {
		switch {
		case b.frozen:
			continue
		case b.family.sharding.Offloaded.Gradients:
			b.ownGrads = o.away.grads.next(b.own.n)
			b.ownSums = b.ownGrads
		case b.family.sharding.shardsGradients():
			b.ownSums = grads.next(b.own.n)
			b.ownGrads = b.ownSums
		default:
			b.grads = grads.next(b.n)
			b.ownSums = b.ours(b.grads)
			b.ownGrads = b.ownSums
		}
		b.bindGrads()
	}
	if o.exact != nil {
		o.allocateRead(wide)
	}
}

// allocateRead makes what this rank's sums on grids are rounded to.
func (o *Optimizer) allocateRead(wide device.DType) {
	read := o.strip(device.MainGradients, wide, func(b *bucket) int64 { return b.trained(b.own.n) })
	for _, b := range o.buckets {
		if !b.frozen {
			b.ownGrads = read.next(b.own.n)
		}
	}
}

// allocateState makes main parameters and moments of this rank's shards, and the segments that
// view them.
func (o *Optimizer) allocateState(dtype, wide device.DType) {
	here, there := o.statesHere(dtype, wide), kinds{}
	if a := o.away; a != nil {
		there = kinds{mains: a.mains, ms: a.ms, vs: a.vs, second: o.secondMoment}
	}
	o.shares = map[*mpu.Param]*segment{}
	for _, b := range o.buckets {
		for i := range b.parts {
			if p := &b.parts[i]; p.away {
				there.cut(b, p)
			} else {
				here.cut(b, p)
			}
		}
		for i, p := range b.params {
			o.bucketOf[p], o.shares[p] = b, b.segment(i)
		}
		for i := range b.parts {
			if !b.frozen {
				o.addRuns(b, &b.parts[i])
			}
		}
	}
}

// statesHere makes the strips of the states that lie in the device's memory.
func (o *Optimizer) statesHere(dtype, wide device.DType) kinds {
	stays := o.away == nil
	here := func(p part) bool { return !p.away }
	for _, b := range o.buckets {
		stays = stays || b.elements(here) > 0
	}
	own := func(kept bool, asked func(part) bool) *strip {
		if !kept || !stays {
			return nil
		}
		return o.strip(device.Optimizer, wide, func(b *bucket) int64 { return b.elements(asked) })
	}
	main, m, v := o.states(dtype, wide)
	return kinds{own(main, here), own(m, func(p part) bool { return !p.away && !p.coded }), own(v, func(p part) bool { return !p.away && o.secondMoment(p) }), o.codeStrips(), o.secondMoment}
}

// states is which states the optimizer keeps of each element: a main parameter, and moments.
func (o *Optimizer) states(dtype, wide device.DType) (main, m, v bool) {
	adam := o.secondMoment(part{}) || o.secondMoment(part{sort: sort{matrix: true}})
	return dtype != wide || o.config.Kind == ScheduleFree, o.config.Kind != SGD || o.config.SGDMomentum != 0, adam
}

// secondMoment reports whether a part has f32 second moments of each element.
func (o *Optimizer) secondMoment(p part) bool {
	switch {
	case p.coded:
		return false
	case p.matrix:
		return o.config.Kind == AdaptiveMuon && o.config.Muon.Moment2 == MomentElements
	}
	kind := o.config.vectors()
	return kind == Adam || kind == Adam8 || kind == ScheduleFree
}

// kept is how many elements of the bucket are here all the time.
func (b *bucket) kept(sharded bool) int64 {
	if sharded {
		return b.own.n
	}
	return b.n
}

// trained is n, or 0 for a frozen bucket.
func (b *bucket) trained(n int64) int64 {
	if b.frozen {
		return 0
	}
	return n
}

// ours is this rank's part of a tensor of the bucket.
func (b *bucket) ours(t device.Tensor) device.Tensor { return t.Slice(0, b.own.from-b.from, b.own.n) }

// strip is one block of memory, of every bucket a share, that is handed out from its
// start.
type strip struct {
	t    device.Tensor
	used int64
	page int64 // where each share begins, a multiple of it; 0: one after the other
}

func (o *Optimizer) strip(purpose device.Purpose, dtype device.DType, share func(*bucket) int64) *strip {
	n := int64(0)
	for _, b := range o.buckets {
		n += share(b)
	}
	return &strip{t: o.device.Arena.Zeroed(purpose, dtype, max(1, n))}
}

// next is the next n elements; none of no strip.
func (s *strip) next(n int64) device.Tensor {
	if s == nil {
		return device.Tensor{}
	}
	from := s.used
	s.used += roundUp(n, max(1, s.page))
	return s.t.Slice(0, from, n)
}

// mine is what this rank's shard has of the i-th parameter, in the flat buffer.
func (b *bucket) mine(i int) stretch {
	return b.own.overlap(stretch{b.from + b.at[i], b.params[i].Len()})
}

// segment is what this rank's shard has of the i-th parameter.
func (b *bucket) segment(i int) *segment {
	mine := b.mine(i)
	start := mine.from - b.own.from
	p := b.partOf(start)
	cut := func(t device.Tensor, from int64) device.Tensor {
		if !t.Given() || mine.n == 0 {
			return device.Tensor{}
		}
		return t.Slice(0, start-from, mine.n)
	}
	var codes coded8
	if mine.n > 0 {
		codes = p.codes.slice(start-p.from, mine.n)
	}
	return &segment{param: b.params[i], codes: codes, from: mine.from - b.from - b.at[i], n: mine.n, start: start, at: p.start + start - p.from, part: p,
		value: cut(b.ownValues, 0), grad: cut(b.ownGrads, 0), sum: cut(b.ownSums, 0), main: cut(p.main, p.from), m: cut(p.m, p.from), v: cut(p.v, p.from)}
}

// bindValues points the bucket's parameters at its values, or at nothing while
// these are away; bindGrads at its gradients.
func (b *bucket) bindValues() {
	for i, p := range b.params {
		p.Value = b.view(i, b.values)
	}
}

func (b *bucket) bindGrads() {
	for i, p := range b.params {
		p.Grad = b.view(i, b.grads)
	}
}

func (b *bucket) view(i int, t device.Tensor) device.Tensor {
	if !t.Given() {
		return t
	}
	return t.Slice(0, b.at[i], b.params[i].Len()).Reshape(b.params[i].Shape...)
}
