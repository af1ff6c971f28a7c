package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// gathersLate tells whether updated values are on their way until they are used.
func (f *family) gathersLate() bool {
	return f.sharding.OverlapParamGather && f.sharded() && !f.sharding.shardsParameters()
}

// gatherAll gives every rank all updated values, where each holds all values but
// updates its shard. The first to be used, the last of the buffer, go first.
func (o *Optimizer) gatherAll() error {
	for _, b := range slices.Backward(o.buckets) {
		if f := b.family; f.sharded() && !f.sharding.shardsParameters() && !b.frozen {
			b.gathering = f.sharers().AllGather(b.values, b.ownValues)
		}
	}
	if slices.ContainsFunc(o.families, (*family).gathersLate) {
		return nil
	}
	return o.awaitGathers()
}

// awaitGathers waits until all values are there that are on their way.
func (o *Optimizer) awaitGathers() error {
	for _, b := range slices.Backward(o.buckets) {
		if err := b.arrived(); err != nil {
			return err
		}
	}
	return nil
}

// arrived waits for a gather under way.
func (b *bucket) arrived() error {
	if b.gathering == nil {
		return nil
	}
	w := b.gathering
	b.gathering = nil
	return w.Wait()
}

// use makes the values of ps whole, for as long as somebody uses them.
func (o *Optimizer) use(ps []*mpu.Param) error {
	for _, p := range ps {
		b := o.bucketOf[p]
		if b.users++; !b.family.sharding.shardsParameters() {
			if err := b.arrived(); err != nil {
				return err
			}
			continue
		}
		if b.values.Given() {
			continue
		}
		b.values = o.device.Arena.Alloc(device.Parameters, b.ownValues.DType, b.n)
		b.bindValues()
		if err := b.family.sharers().AllGather(b.values, b.ownValues).Wait(); err != nil {
			return err
		}
	}
	return nil
}

// done frees values that nobody uses any more.
func (o *Optimizer) done(ps []*mpu.Param) {
	for _, p := range ps {
		b := o.bucketOf[p]
		if b.users--; b.users == 0 && b.family.sharding.shardsParameters() {
			o.device.Arena.Free(b.values)
			b.values = device.Tensor{}
			b.bindValues()
		}
	}
}

// Whole brings all values of the rank's parameters, for work outside of the hooks
// such as generating text, until release is called. Every data-parallel rank calls it.
func (o *Optimizer) Whole() (release func(), err error) {
	return func() { o.done(o.params) }, o.use(o.params)
}

// Initialize draws every parameter's start from the seed, the same whatever the
// sharding.
func (o *Optimizer) Initialize(seed uint64) error {
	return o.Fill(func(p *mpu.Param) error {
		p.Initialize(o.device, seed)
		return nil
	})
}

// Fill has start set every parameter's values, which are whole while it does, and
// makes masters of them, rounded as they are.
func (o *Optimizer) Fill(start func(*mpu.Param) error) error {
	for _, b := range o.buckets {
		whole := b.values
		if !whole.Given() {
			b.values = o.device.Arena.Zeroed(device.Parameters, b.ownValues.DType, b.n)
			b.bindValues()
		}
		for _, p := range b.params {
			if err := start(p); err != nil {
				return err
			}
		}
		if !whole.Given() {
			o.device.Copy(b.ownValues, b.ours(b.values))
			o.device.Arena.Free(b.values)
			b.values = whole
			b.bindValues()
		}
	}
	o.AdoptValues(func(string) bool { return true })
	return o.device.Sync()
}

// AdoptValues makes the masters of the named parameters equal to their values, as
// after loading weights without masters.
func (o *Optimizer) AdoptValues(named func(string) bool) {
	for _, s := range o.segments {
		if s.hasMaster() && named(s.param.Name) {
			o.device.Copy(s.main, s.value)
		}
	}
}
