package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// ZeroGrad begins a step: no gradients yet.
func (o *Optimizer) ZeroGrad() {
	for _, b := range o.buckets {
		b.reduced = false
		clear(b.ready)
		if !b.frozen {
			o.device.Fill(b.stepGrads(), 0)
		}
	}
}

// stepGrads is the gradients that last over a step: all, or this rank's.
func (b *bucket) stepGrads() device.Tensor {
	if b.grads.Given() {
		return b.grads
	}
	return b.ownGrads
}

// Hooks are what a model calls while a micro-batch goes through, in the order
// that all data-parallel ranks share; nil where the sharding does not need it.
type Hooks struct {
	Use        func([]*mpu.Param) error // before these values are read
	Done       func([]*mpu.Param)       // after
	Accumulate func([]*mpu.Param) error // before gradients are added to these
	Gradients  func([]*mpu.Param) error // this backward adds no more to these
}

// Hooks for one micro-batch on one stage; last: the stage's last backward of the
// step.
func (o *Optimizer) Hooks(last bool) Hooks {
	var h Hooks
	if slices.ContainsFunc(o.families, (*family).comes) {
		h.Use, h.Done = o.use, o.done
	}
	if slices.ContainsFunc(o.families, (*family).foresees) {
		h.Use = func(ps []*mpu.Param) error {
			if err := o.use(ps); err != nil {
				return err
			}
			return o.foresee(ps)
		}
	}
	for _, f := range o.families {
		if f.sharding.shardsGradients() {
			h.Accumulate = o.accumulate
		}
		if f.reducesEarly(last) {
			h.Gradients = func(ps []*mpu.Param) error { return o.gradients(ps, last) }
		}
	}
	return h
}

// reducesEarly tells whether gradients are reduced during the backward pass; last: the
// stage's last of the step.
func (f *family) reducesEarly(last bool) bool {
	return f.sharding.shardsGradients() || last && f.sharding.OverlapGradReduce && size(f.Data) > 1
}

// accumulate gives the buckets of ps memory for gradients.
func (o *Optimizer) accumulate(ps []*mpu.Param) error {
	for _, p := range ps {
		b := o.bucketOf[p]
		if b.frozen {
			continue
		}
		if b.reducing != nil {
			if err := o.land(); err != nil {
				return err
			}
		}
		if !b.grads.Given() {
			b.grads = o.device.Arena.Zeroed(device.MainGradients, b.ownGrads.DType, b.n)
			b.bindGrads()
		}
	}
	return nil
}

// gradients reduces the buckets that ps complete.
func (o *Optimizer) gradients(ps []*mpu.Param, last bool) error {
	for _, p := range ps {
		b := o.bucketOf[p]
		if b.frozen || !b.family.reducesEarly(last) {
			continue
		}
		b.ready[p] = true
		if len(b.ready) < len(b.params) {
			continue
		}
		if err := o.reduce(b); err != nil {
			return err
		}
	}
	return nil
}

// reduce starts to sum a bucket's gradients over the data-parallel ranks.
func (o *Optimizer) reduce(b *bucket) error {
	clear(b.ready)
	f := b.family
	if err := o.land(); err != nil { // one at a time: each holds a whole bucket
		return err
	}
	switch {
	case b.reduced || !b.grads.Given() || size(f.Data) == 1:
	case f.sharding.shardsGradients():
		b.reducing, o.flying = f.sharers().ReduceScatter(b.ours(b.grads), b.grads), b
		if !f.sharding.OverlapGradReduce {
			return o.land()
		}
	case f.sharding.Strategy == Optim:
		b.reducing, b.reduced = f.sharers().ReduceScatter(b.ownGrads, b.grads), true
	default:
		b.reducing, b.reduced = f.Data.AllReduce(b.grads, comm.Sum), true
	}
	return nil
}

// land waits for the bucket under way, adds this rank's part to what it has of the
// step, and gives the memory back.
func (o *Optimizer) land() error {
	b := o.flying
	if b == nil {
		return nil
	}
	err := b.reducing.Wait()
	if err == nil {
		o.device.Add(b.ownGrads, b.ownGrads, b.ours(b.grads))
	}
	o.device.Arena.Free(b.grads)
	b.grads, b.reducing, o.flying = device.Tensor{}, nil, nil
	b.bindGrads()
	return err
}

// finalize completes the step's gradients, in Megatron's order: over
// data-parallel ranks (those that share a state, then its copies), then over ranks of a model that each have a part
// (norms under sequence parallelism, a tied table's two copies).
func (o *Optimizer) finalize() error {
	for _, b := range o.buckets {
		if err := o.reduce(b); err != nil {
			return err
		}
	}
	if err := o.land(); err != nil {
		return err
	}
	if err := o.reduced(); err != nil {
		return err
	}
	for _, b := range o.buckets {
		if b.family.sharded() && size(b.family.Across) > 1 && !b.frozen {
			b.reducing = b.family.Across.AllReduce(b.ownGrads, comm.Sum)
		}
	}
	if err := o.reduced(); err != nil {
		return err
	}
	return o.sumParts()
}

// reduced waits for all reductions under way.
func (o *Optimizer) reduced() error {
	for _, b := range o.buckets {
		if b.reducing == nil {
			continue
		}
		err := b.reducing.Wait()
		if b.reducing = nil; err != nil {
			return err
		}
	}
	return nil
}

// parts are the gradients that one group of ranks adds up.
type parts struct {
	group   *comm.Group
	grads   []device.Tensor
	n       int64
	packed  device.Tensor
	summing comm.Work
}

// sumParts adds up the partial gradients of parameters with SumOver, all those of
// a group as one.
func (o *Optimizer) sumParts() error {
	all := o.partial()
	for _, p := range all {
		o.pack(p)
		p.summing = p.group.AllReduce(p.packed, comm.Sum)
	}
	for _, p := range all {
		if err := p.summing.Wait(); err != nil {
			return err
		}
		o.unpack(p)
	}
	return nil
}

func (o *Optimizer) partial() (all []*parts) {
	for _, s := range o.segments {
		if size(s.param.SumOver) == 1 {
			continue
		}
		var p *parts
		for _, q := range all {
			if q.group == s.param.SumOver {
				p = q
			}
		}
		if p == nil {
			p = &parts{group: s.param.SumOver}
			all = append(all, p)
		}
		p.grads = append(p.grads, s.grad)
		p.n += s.n
	}
	return all
}

// pack copies the gradients side by side; a single one is summed where it lies.
func (o *Optimizer) pack(p *parts) {
	if len(p.grads) == 1 {
		p.packed = p.grads[0]
		return
	}
	p.packed = o.device.Arena.Alloc(device.Communication, p.grads[0].DType, p.n)
	p.each(func(grad, packed device.Tensor) { o.device.Copy(packed, grad) })
}

func (o *Optimizer) unpack(p *parts) {
	if len(p.grads) == 1 {
		return
	}
	p.each(func(grad, packed device.Tensor) { o.device.Copy(grad, packed) })
	o.device.Arena.Free(p.packed)
}

func (p *parts) each(do func(grad, packed device.Tensor)) {
	at := int64(0)
	for _, g := range p.grads {
		do(g, p.packed.Slice(0, at, g.Len()))
		at += g.Len()
	}
}
