package engine

import (
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/mpu/comm"
	"monotron/mpu/topology"
)

// Mixtures is what the layers of experts tell of a step; the same on every rank.
type Mixtures struct {
	Losses [model.AuxiliaryLosses][]float64 // of each layer, without its coefficient: the mean over micro-batches and data-parallel ranks
	Tokens [][]float64                      // [layer][expert]: how many each was given
	Bytes  []float64                        // [layer]: of tokens, results and gradients that went from rank to rank

	quantiles [][]float64 // [layer][expert]: means over micro-batches (--moe-router-load-balancing-type quantile_balancing)
}

// beginMixtures forgets the last step's; a step of so many micro-batches follows.
func (e *Engine) beginMixtures(scale float64, micros int) {
	if e.auxiliary == nil {
		return
	}
	if !e.config.CalculatePerTokenLoss {
		scale /= float64(micros * e.rank.Sizes.DP)
	}
	e.auxiliary.Begin(e.device, scale)
}

// sumMixtures adds up what the ranks know of their experts; micros: of how many parts of a rank's
// batch losses are means.
func (e *Engine) sumMixtures(r *Result, micros int) error {
	a := e.auxiliary
	if a == nil {
		return nil
	}
	layers, experts := e.config.Model.AllLayers(), e.config.Model.Experts.Num
	parts := [][]float64{device.ReadSlice[float64](e.device, a.Losses), toFloats(device.ReadSlice[float32](e.device, a.Tokens)), toFloats(a.Moved), slices.Concat(a.Quantiles...)}
	if err := e.sumFloats(parts); err != nil {
		return err
	}
	losses, tokens, quantiles := parts[0], parts[1], parts[3]
	r.Mixtures = &Mixtures{Tokens: slices.Collect(slices.Chunk(tokens, experts)), Bytes: parts[2]}
	for l := range layers {
		for loss := range model.AuxiliaryLosses {
			value := losses[2*(int(loss)*layers+l)] / float64(micros)
			if loss != model.GlobalLoadBalancingLoss { // each rank has all of its samples'
				value /= float64(e.rank.Sizes.DP)
			}
			r.Mixtures.Losses[loss] = append(r.Mixtures.Losses[loss], value)
		}
	}
	for i := range quantiles { // the ranks of a stage have one each, of every micro-batch
		quantiles[i] /= float64(micros * e.rank.Sizes.World() / e.rank.Sizes.PP)
	}
	r.Mixtures.quantiles = slices.Collect(slices.Chunk(quantiles, experts))
	return nil
}

// balanceExperts moves what routers choose by, after a step that is not made again.
func (e *Engine) balanceExperts(r *Result) error {
	if r.Mixtures == nil {
		return nil
	}
	for _, s := range e.Stages {
		s.BalanceExperts(r.Mixtures.Tokens, r.Mixtures.quantiles)
	}
	return e.device.Sync()
}

// sumFloats adds up lists of numbers, as long on every rank, over all ranks.
func (e *Engine) sumFloats(lists [][]float64) error {
	s := e.device.Arena.Scope(device.Workspace)
	defer s.Release()
	all := put(e.device, s, device.F64, slices.Concat(lists...))
	if err := e.rank.World().AllReduce(all, comm.Sum).Wait(); err != nil {
		return err
	}
	sums := device.ReadSlice[float64](e.device, all)
	for _, list := range lists {
		sums = sums[copy(list, sums):]
	}
	return e.device.Sync()
}

func toFloats[N int64 | float32](counts []N) (all []float64) {
	for _, n := range counts {
		all = append(all, float64(n))
	}
	return all
}

// mixtureKinds are the groups that experts need in addition to a step's.
var mixtureKinds = []topology.Kind{topology.TPEP, topology.ExpertDP, topology.TPCP, topology.TPDPCP}
