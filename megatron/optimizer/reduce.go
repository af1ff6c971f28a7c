package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// ZeroGrad begins a step: no gradients yet, and values at which they are taken. Every rank of a data-parallel
// group calls it.
func (o *Optimizer) ZeroGrad() error {
	if o.exact != nil {
		o.device.Fill(o.exact.peaks, 0)
	}
	for _, b := range o.buckets {
		b.reduced, b.begun = false, false
		clear(b.ready)
		if t := b.stepGrads(); !b.frozen && !t.Offloaded() {
			o.device.Fill(t, 0)
		}
	}
	return o.toGradients()
}

// stepGrads is the gradients that last over a step: all, or this rank's.
func (b *bucket) stepGrads() device.Tensor {
	if b.grads.Given() {
		return b.grads
	}
	return b.ownSums
}

// Hooks for one micro-batch on one stage; last: the stage's last backward of the
// step.
func (o *Optimizer) Hooks(last bool) mpu.Hooks {
	var h mpu.Hooks
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
		if f.sharding.bringsGradients() {
			h.Accumulate = o.accumulate
		}
		if f.reducesEarly(last) {
			h.Gradients = func(ps []*mpu.Param) error { return o.gradients(ps, last) }
		}
	}
	return h
}

// reducesEarly reports whether gradients are reduced during the backward pass; last: the
// stage's last of the step.
func (f *family) reducesEarly(last bool) bool {
	return f.sharding.bringsGradients() || last && f.sharding.OverlapGradReduce && size(f.Data) > 1
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
			o.bringGrads(b)
		}
	}
	return nil
}

// bringGrads allocates gradients of a bucket: zeros, where several ranks have a shard of
// their sum, else what there is of the step.
func (o *Optimizer) bringGrads(b *bucket) {
	if b.ownSums.Offloaded() {
		b.grads, b.gradBlock = o.device.Arena.Paged(device.MainGradients, b.ownSums.DType, b.n, b.own.from-b.from)
	} else {
		b.grads = o.device.Arena.Alloc(device.MainGradients, b.ownSums.DType, b.n)
		b.gradBlock = b.grads
	}
	if b.begun && !b.family.sharded() {
		o.device.Move(b.grads, b.ownSums)
	} else {
		o.device.Fill(b.grads, 0)
	}
	b.bindGrads()
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
	if err := o.land(); err != nil { // one at a time: each has the memory of a complete bucket
		return err
	}
	switch {
	case b.reduced || !b.grads.Given():
	case f.sharding.Offloaded.Gradients && !f.sharded():
		b.reducing, o.inFlight = o.put(b.ownSums, b.grads), b
	case size(f.Data) == 1:
	case f.sharding.shardsGradients():
		b.reducing, o.inFlight = f.sharers().ReduceScatter(b.ours(b.grads), b.grads), b
		if !f.sharding.OverlapGradReduce {
			return o.land()
		}
	case f.sharding.Strategy == Optim:
		b.reducing, b.reduced = f.sharers().ReduceScatter(b.ownSums, b.grads), true
	default:
		b.reducing, b.reduced = f.Data.AllReduce(b.grads, comm.Sum), true
	}
	return nil
}

// land waits for the bucket under way, adds this rank's part to what it has of the
// step, and gives the memory back.
func (o *Optimizer) land() error {
	b := o.inFlight
	if b == nil {
		return nil
	}
	err := b.reducing.Wait()
	if err == nil && b.family.sharded() {
		o.addShard(b)
	}
	o.device.Arena.Free(b.gradBlock)
	b.begun = true
	b.grads, b.gradBlock, b.reducing, o.inFlight = device.Tensor{}, device.Tensor{}, nil, nil
	b.bindGrads()
	return err
}

// addShard adds this rank's part of a reduced bucket to what it has of the step.
func (o *Optimizer) addShard(b *bucket) {
	ours := b.ours(b.grads)
	if !b.ownSums.Offloaded() {
		o.add(b.ownSums, ours)
		return
	}
	if b.begun {
		sum, block := o.device.Arena.Paged(device.MainGradients, b.ownSums.DType, b.own.n, 0)
		o.device.Move(sum, b.ownSums)
		o.device.Add(ours, sum, ours)
		o.device.Arena.Free(block)
	}
	o.device.Move(b.ownSums, ours)
}

// add adds more to a sum; on a grid, where it already lies, without a rounding.
func (o *Optimizer) add(sum, more device.Tensor) {
	if o.exact == nil {
		o.device.Add(sum, sum, more)
		return
	}
	o.device.GridAdd(device.GridAddArgs{Sum: sum, X: more})
}

// zeroRest sets offloaded gradients to which nothing was added in this step to zero.
func (o *Optimizer) zeroRest() {
	for _, b := range o.buckets {
		if b.begun || !b.ownSums.Offloaded() {
			continue
		}
		none, block := o.device.Arena.Paged(device.MainGradients, b.ownSums.DType, b.own.n, 0)
		o.device.Fill(none, 0)
		o.device.Move(b.ownSums, none)
		o.device.Arena.Free(block)
		b.begun = true
	}
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
	o.zeroRest()
	for _, b := range o.buckets {
		if b.family.sharded() && size(b.family.Across) > 1 && !b.frozen {
			b.reducing = b.family.Across.AllReduce(b.ownSums, comm.Sum)
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
		p.grads = append(p.grads, s.sum)
		p.n += s.n
	}
	return all
}

// summedThere reports whether the gradients are summed where they lie: a single one, here.
func (p *parts) summedThere() bool { return len(p.grads) == 1 && !p.grads[0].Offloaded() }

// pack copies the gradients side by side, unless they are summed where they are.
func (o *Optimizer) pack(p *parts) {
	if p.summedThere() {
		p.packed = p.grads[0]
		return
	}
	p.packed = o.device.Arena.Alloc(device.Communication, p.grads[0].DType, p.n)
	p.each(func(grad, packed device.Tensor) { o.device.Move(packed, grad) })
}

func (o *Optimizer) unpack(p *parts) {
	if p.summedThere() {
		return
	}
	p.each(func(grad, packed device.Tensor) { o.device.Move(grad, packed) })
	o.device.Arena.Free(p.packed)
}

func (p *parts) each(do func(grad, packed device.Tensor)) {
	at := int64(0)
	for _, g := range p.grads {
		do(g, p.packed.Slice(0, at, g.Len()))
		at += g.Len()
	}
}
