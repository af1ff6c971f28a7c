package optimizer

import (
	"errors"
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// gathersLate reports whether updated values are on their way until they are used.
func (f *family) gathersLate() bool {
	return f.sharding.OverlapParamGather && f.sharded() && !f.sharding.shardsParameters()
}

// comes reports whether values must be asked for before they are used.
func (f *family) comes() bool { return f.sharding.transient() || f.gathersLate() }

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

// use makes the values of ps complete, for as long as they are in use, but those that products unpack themselves.
func (o *Optimizer) use(ps []*mpu.Param) error { return o.hold(ps, false) }

// hold is use, with every also of values that products unpack; those of several buckets travel together.
func (o *Optimizer) hold(ps []*mpu.Param, every bool) error {
	for _, p := range ps {
		if p.Unpack != nil && !every {
			continue
		}
		b := o.bucketOf[p]
		if b.users++; b.family.sharding.transient() && !b.values.Given() {
			o.bring(b)
		}
	}
	for _, p := range ps {
		if err := o.bucketOf[p].arrived(); err != nil {
			return err
		}
	}
	return nil
}

// bring starts to gather the values of a bucket of which a rank has its shard alone, or which is
// offloaded.
func (o *Optimizer) bring(b *bucket) {
	if b.ownValues.Offloaded() {
		b.values, b.block = o.device.Arena.Paged(device.Parameters, b.ownValues.DType, b.n, b.own.from-b.from)
		b.bindValues()
		b.gathering = o.fetch(b)
		return
	}
	b.values = o.device.Arena.Alloc(device.Parameters, b.ownValues.DType, b.n)
	b.block = b.values
	b.bindValues()
	b.gathering = b.family.sharers().AllGather(b.values, b.ownValues)
}

// done frees values that nobody uses any more; letGo does so after hold.
func (o *Optimizer) done(ps []*mpu.Param) { o.letGo(ps, false) }

// letGo is documented with done.
func (o *Optimizer) letGo(ps []*mpu.Param, every bool) {
	for _, p := range ps {
		if p.Unpack != nil && !every {
			continue
		}
		b := o.bucketOf[p]
		if b.users--; b.users > 0 || !b.family.sharding.transient() {
			continue
		}
		if o.keeps(b) {
			o.ahead.coming = append(o.ahead.coming, b)
			continue
		}
		o.release(b)
	}
}

// release frees the complete values; the shard stays.
func (o *Optimizer) release(b *bucket) {
	o.device.Arena.Free(b.block)
	b.values, b.block = device.Tensor{}, device.Tensor{}
	b.bindValues()
}

// Gather gathers all values of the rank's parameters, for work outside of the hooks
// such as generating text; release frees them. Every data-parallel rank calls it.
func (o *Optimizer) Gather() (release func(), err error) {
	return func() { o.letGo(o.params, true) }, errors.Join(o.Rest(), o.hold(o.params, true))
}

// Initialize draws every parameter's initial values from the seed. They do not
// depend on the sharding.
func (o *Optimizer) Initialize(seed uint64) error {
	return o.Fill(func(p *mpu.Param) error {
		p.Initialize(o.device, seed)
		return nil
	})
}

// Fill calls start for every parameter, with its complete tensor in Value, to set the values.
// Main parameters then become equal to these, which are rounded to the values' dtype.
func (o *Optimizer) Fill(start func(*mpu.Param) error) error {
	return o.FillNamed(func(string) bool { return true }, start)
}

// FillNamed is Fill of a new optimizer's named parameters; the others keep their zeros.
func (o *Optimizer) FillNamed(named func(string) bool, start func(*mpu.Param) error) error {
	if err := o.Rest(); err != nil {
		return err
	}
	for _, b := range o.buckets {
		if !slices.ContainsFunc(b.params, func(p *mpu.Param) bool { return named(p.Name) }) {
			continue
		}
		full := b.values
		if !full.Given() {
			b.values = o.device.Arena.Zeroed(device.Parameters, b.ownValues.DType, b.n)
			b.bindValues()
		}
		for _, p := range b.params {
			if !named(p.Name) {
				continue
			}
			if err := start(p); err != nil {
				return err
			}
		}
		if !full.Given() {
			o.device.Move(b.ownValues, b.ours(b.values))
			o.device.Arena.Free(b.values)
			b.values = full
			b.bindValues()
		}
	}
	o.AdoptValues(func(string) bool { return true })
	return o.device.Sync()
}

// AdoptValues makes the main parameters of the named parameters equal to their values, as
// after loading weights without main parameters.
func (o *Optimizer) AdoptValues(named func(string) bool) {
	for _, s := range o.segments {
		if s.hasMaster() && !s.main.Offloaded() && named(s.param.Name) {
			o.device.Copy(s.main, s.value)
			if o.averaging != nil {
				o.device.Copy(s.m, s.value)
			}
		}
	}
	o.adoptOffloaded(named)
}
