package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Prefixes of a checkpoint's tensors.
const (
	StoredMain = "optimizer.main."
	StoredExpM = "optimizer.exp_avg."
	StoredExpV = "optimizer.exp_avg_sq."
	StoredGrid = "optimizer.grid."

	// Of ScheduleFree: the sequence of steps of a parameter; the sum of the weights of all steps and the
	// largest learning rate.
	StoredSteps   = "optimizer.z."
	StoredAverage = "optimizer.average"

	// Second moments of AdaptiveMuon, of directions and not of gradients: shaped as the parameter, or of lines.
	StoredMoment2 = "optimizer.moment2."

	// Of moments of 8 bits: codes, and of each block of them the scale.
	StoredCodesM  = "optimizer.exp_avg_codes."
	StoredScalesM = "optimizer.exp_avg_absmax."
	StoredCodesV  = "optimizer.exp_avg_sq_codes."
	StoredScalesV = "optimizer.exp_avg_sq_absmax."
	StoredModel   = "model."
)

// StoredStates are the prefixes of the optimizer's states of a parameter.
var StoredStates = []string{StoredMain, StoredExpM, StoredExpV, StoredSteps, StoredMoment2, StoredCodesM, StoredScalesM, StoredCodesV, StoredScalesV}

// Weights lists the values for a checkpoint: complete parameters, of which
// data-parallel ranks write some each, or under ZeRO-3 this rank's shards. It
// waits for values on their way; when they do not come, the next collective says why.
func (o *Optimizer) Weights() []mpu.Stored {
	return o.weights(func(*mpu.Param) bool { return true })
}

// TrainedWeights are those of Weights whose parameters are trained, FrozenWeights the others.
func (o *Optimizer) TrainedWeights() []mpu.Stored {
	return o.weights(func(p *mpu.Param) bool { return !p.Frozen })
}

// FrozenWeights is documented with TrainedWeights.
func (o *Optimizer) FrozenWeights() []mpu.Stored {
	return o.weights(func(p *mpu.Param) bool { return p.Frozen })
}

// weights are Weights of some parameters.
func (o *Optimizer) weights(of func(*mpu.Param) bool) []mpu.Stored {
	_ = o.awaitGathers()
	var all []mpu.Stored
	mine := o.turns()
	for _, p := range o.params {
		if !of(p) {
			continue
		}
		if f := o.bucketOf[p].family; f.sharding.transient() {
			all = o.shares[p].stored(all, StoredModel, o.shares[p].value, f.once(p))
			continue
		}
		all = append(all, p.Stored(StoredModel, p.Value, 0, p.Owner && mine[p])...)
	}
	return all
}

// Stored lists what a checkpoint keeps of the optimizer: moments, and main parameters
// where they are not the values themselves; of each the part that this rank holds.
func (o *Optimizer) Stored() []mpu.Stored {
	var all []mpu.Stored
	mine := o.turns()
	for _, s := range o.segments {
		f := o.bucketOf[s.param].family
		write := f.sharded() && f.once(s.param) || !f.sharded() && s.param.Owner && mine[s.param]
		if s.hasMaster() {
			all = s.stored(all, StoredMain, s.main, write)
		}
		first, second := StoredExpM, StoredExpV
		if o.averaging != nil {
			first = StoredSteps
		}
		all = s.stored(all, first, s.m, write)
		if s.part.matrix {
			second = StoredMoment2
		}
		all = s.stored(all, second, s.v, write)
		all = s.storedCodes(all, write)
	}
	return o.storedGrids(o.storedAverage(o.storedLines(all)), mine)
}

// Gradients lists, between a Step and the next ZeroGrad, this rank's part of the
// final gradients (before clipping, times StepArgs.Factor) under the parameters'
// names, for comparisons. Write marks each element on one rank of the world.
func (o *Optimizer) Gradients() []mpu.Stored {
	var all []mpu.Stored
	for _, s := range o.segments {
		all = s.stored(all, "", s.grad, o.bucketOf[s.param].family.once(s.param))
	}
	return all
}

// stored adds a tensor of the segment, unless there is none.
func (s *segment) stored(all []mpu.Stored, prefix string, t device.Tensor, write bool) []mpu.Stored {
	if !t.Given() {
		return all
	}
	return append(all, s.param.Stored(prefix, t, s.from, write)...)
}

// turns says which of the parameters that all data-parallel ranks hold this one
// writes: each goes to the rank with the least so far.
func (o *Optimizer) turns() map[*mpu.Param]bool {
	mine := map[*mpu.Param]bool{}
	loads := map[*family][]int64{}
	for _, p := range o.params {
		f := o.bucketOf[p].family
		if loads[f] == nil {
			loads[f] = make([]int64, size(f.Data))
		}
		load := loads[f]
		least := slices.Index(load, slices.Min(load))
		load[least] += p.Len()
		mine[p] = least == rank(f.Data)
	}
	return mine
}
