package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// bucket is a stretch of the flat buffer whose gradients are reduced, and whose
// values are gathered, as one.
type bucket struct {
	plan
	own stretch // this rank's shard; the whole bucket where nothing is sharded

	values, grads       device.Tensor // [n]; not given while only shards are held
	ownValues, ownGrads device.Tensor // [own.n]: in the above where these always exist

	ready     map[*mpu.Param]bool // gradients that are complete
	reduced   bool                // this step's gradients
	reducing  comm.Work           // nil: not under way
	gathering comm.Work
	users     int // uses under way of parameters that come and go
}

// segment is the part of one parameter that this rank updates: elements
// [from, from+n) of its local buffer, each tensor [n].
type segment struct {
	param   *mpu.Param
	from, n int64

	value, main, grad device.Tensor // main is value in f32 training
	m, v              device.Tensor // moments, f32; SGD: momentum in m; not given: none
}

func (s *segment) hasMaster() bool { return s.main.Data != s.value.Data }

// allocate makes all memory that lasts, and binds parameters to it.
func (o *Optimizer) allocate(dtype device.DType) {
	plans := layout(o.params, o.shards(), size(o.groups.Data), o.sharding)
	shards := int64(o.shards())
	total := int64(0)
	for _, p := range plans {
		b := &bucket{plan: p, ready: map[*mpu.Param]bool{}}
		b.own = stretch{p.from + p.n/shards*int64(o.shard()), p.n / shards}
		o.buckets = append(o.buckets, b)
		total += p.n
	}
	wide := device.F32
	if dtype == device.F64 {
		wide = device.F64
	}
	all := func(purpose device.Purpose, t device.DType) *strip { return o.strip(purpose, t, total) }
	own := func(purpose device.Purpose, t device.DType) *strip { return o.strip(purpose, t, total/shards) }

	o.allocateValues(dtype, all, own)
	o.allocateGrads(wide, all, own)
	mains, ms, vs := (*strip)(nil), (*strip)(nil), (*strip)(nil)
	if dtype != wide {
		mains = own(device.Optimizer, wide)
	}
	if o.config.Kind == Adam || o.config.SGDMomentum != 0 {
		ms = own(device.Optimizer, wide)
	}
	if o.config.Kind == Adam {
		vs = own(device.Optimizer, wide)
	}
	byParam := map[*mpu.Param]*segment{}
	for _, b := range o.buckets {
		main, m, v := mains.next(b.own.n), ms.next(b.own.n), vs.next(b.own.n)
		if mains == nil {
			main = b.ownValues
		}
		for i, p := range b.params {
			o.bucketOf[p] = b
			byParam[p] = b.segment(i, main, m, v)
		}
		b.bindValues()
		b.bindGrads()
	}
	for _, p := range o.params { // in the order of the model, which is that of the norm's sum
		s := byParam[p]
		p.Main = p.Value // in f32; not there while the values are not
		if s.n == 0 {
			continue
		}
		o.segments = append(o.segments, s)
		if mains != nil {
			p.Main = device.Tensor{}
			if s.n == p.Len() && o.shards() == 1 {
				p.Main = s.main.Reshape(p.Shape...)
			}
		}
	}
}

// allocateValues: all values, or under ZeRO-3 this rank's.
func (o *Optimizer) allocateValues(dtype device.DType, all, own func(device.Purpose, device.DType) *strip) {
	if o.sharding.shardsParameters() {
		values := own(device.Parameters, dtype)
		for _, b := range o.buckets {
			b.ownValues = values.next(b.own.n)
		}
		return
	}
	values := all(device.Parameters, dtype)
	for _, b := range o.buckets {
		b.values = values.next(b.n)
		b.ownValues = b.ours(b.values)
	}
}

// allocateGrads: all gradients, or under ZeRO-2 and 3 this rank's.
func (o *Optimizer) allocateGrads(wide device.DType, all, own func(device.Purpose, device.DType) *strip) {
	if o.sharding.shardsGradients() {
		grads := own(device.MainGradients, wide)
		for _, b := range o.buckets {
			b.ownGrads = grads.next(b.own.n)
		}
		return
	}
	grads := all(device.MainGradients, wide)
	for _, b := range o.buckets {
		b.grads = grads.next(b.n)
		b.ownGrads = b.ours(b.grads)
	}
}

// ours is this rank's part of a tensor of the bucket.
func (b *bucket) ours(t device.Tensor) device.Tensor { return t.Slice(0, b.own.from-b.from, b.own.n) }

// strip is one block of memory that is handed out from its start.
type strip struct {
	t    device.Tensor
	used int64
}

func (o *Optimizer) strip(purpose device.Purpose, dtype device.DType, n int64) *strip {
	return &strip{t: o.device.Arena.Zeroed(purpose, dtype, max(1, n))}
}

// next is the next n elements; none of no strip.
func (s *strip) next(n int64) device.Tensor {
	if s == nil {
		return device.Tensor{}
	}
	s.used += n
	return s.t.Slice(0, s.used-n, n)
}

// segment is what this rank's shard has of the i-th parameter.
func (b *bucket) segment(i int, main, m, v device.Tensor) *segment {
	p, at := b.params[i], b.from+b.at[i]
	mine := b.own.overlap(stretch{at, p.Len()})
	cut := func(t device.Tensor) device.Tensor {
		if !t.Given() || mine.n == 0 {
			return device.Tensor{}
		}
		return t.Slice(0, mine.from-b.own.from, mine.n)
	}
	return &segment{param: p, from: mine.from - at, n: mine.n, value: cut(b.ownValues), main: cut(main), grad: cut(b.ownGrads), m: cut(m), v: cut(v)}
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
