package optimizer

import (
	"slices"

	"monotron/mpu"
)

// ahead gathers parameters before they are used, if they are offloaded, or sharded (ZeRO-3) with OverlapParamGather.
// While one layer computes, the parameters are gathered that were used next in the last pass of the same kind
// (step or evaluation). All ranks that share parameters use them in one order, so they predict the same. If a pass
// deviates from the last one's order, prefetched parameters are dropped, and nothing is prefetched until its end.
type ahead struct {
	orders [2][][]*mpu.Param // of uses, in the last evaluation and the last step
	train  int               // which of them is under way
	at     int               // uses so far
	lost   bool              // the pass goes another way than the last one

	next   []*mpu.Param // foreseen
	coming []*bucket    // that nobody uses yet, or again: on their way, or there
}

// Begin is called before a pass over micro-batches: a step's if train, else an evaluation's.
func (o *Optimizer) Begin(train bool) {
	a := &o.ahead
	a.train, a.at, a.lost = 0, 0, false
	if train {
		a.train = 1
	}
}

// foresee learns that ps are used now, and starts to bring what comes after them.
func (o *Optimizer) foresee(ps []*mpu.Param) error {
	a := &o.ahead
	order := &a.orders[a.train]
	if a.at < len(*order) && !slices.Equal((*order)[a.at], ps) {
		*order, a.lost = (*order)[:a.at], true
	}
	if a.at == len(*order) {
		*order = append(*order, ps)
	}
	a.at++
	if err := o.dropComing(); err != nil {
		return err
	}
	if a.next = nil; a.at < len(*order) && !a.lost {
		a.next = (*order)[a.at]
	}
	for _, p := range a.next {
		if b := o.bucketOf[p]; p.Unpack == nil && b.family.foresees() && !b.values.Given() {
			o.bring(b)
			a.coming = append(a.coming, b)
		}
	}
	return nil
}

// foresees reports whether values that come and go come before they are used.
func (f *family) foresees() bool {
	return f.sharding.Offloaded.Parameters || f.sharding.shardsParameters() && f.sharding.OverlapParamGather
}

// keeps reports whether a bucket that nobody uses any more stays: it is used again at once.
func (o *Optimizer) keeps(b *bucket) bool {
	return b.family.foresees() && slices.ContainsFunc(o.ahead.next, func(p *mpu.Param) bool { return o.bucketOf[p] == b })
}

// dropComing gives back what was brought and nobody uses.
func (o *Optimizer) dropComing() error {
	coming := o.ahead.coming
	o.ahead.coming = nil
	for _, b := range coming {
		if b.users > 0 {
			continue
		}
		err := b.arrived()
		o.release(b)
		if err != nil {
			return err
		}
	}
	return nil
}

// Rest ends a pass: prefetched parameters are released, and the recorded order of uses ends where
// this pass ended.
func (o *Optimizer) Rest() error {
	a := &o.ahead
	if order := &a.orders[a.train]; a.at < len(*order) && a.at > 0 {
		*order = (*order)[:a.at]
	}
	a.next, a.lost = nil, true
	return o.dropComing()
}
