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

// sumMixtures adds up what the ranks know of their experts, and moves the experts' biases.
func (e *Engine) sumMixtures(r *Result, micros int) error {
	a := e.auxiliary
	if a == nil {
		return nil
	}
	layers, experts := e.config.Model.NumLayers, e.config.Model.Experts.Num
	s := e.device.Arena.Scope(device.Workspace)
	defer s.Release()
	moved, quantiles := s.Alloc(device.F64, int64(layers)), s.Alloc(device.F64, int64(layers*experts))
	device.WriteSlice(e.device, moved, floats(a.Moved))
	device.WriteSlice(e.device, quantiles, slices.Concat(a.Quantiles...))
	for _, t := range []device.Tensor{a.Losses, a.Tokens, moved, quantiles} {
		if err := e.rank.World().AllReduce(t, comm.Sum).Wait(); err != nil {
			return err
		}
	}
	losses, tokens := device.ReadSlice[float64](e.device, a.Losses), device.ReadSlice[float32](e.device, a.Tokens)
	r.Mixtures = &Mixtures{Tokens: make([][]float64, layers), Bytes: device.ReadSlice[float64](e.device, moved)}
	for l := range layers {
		for _, n := range tokens[l*experts:][:experts] {
			r.Mixtures.Tokens[l] = append(r.Mixtures.Tokens[l], float64(n))
		}
		for loss := range model.AuxiliaryLosses {
			value := losses[2*(int(loss)*layers+l)] / float64(micros)
			if loss != model.GlobalLoadBalancingLoss { // each rank has the whole of its samples'
				value /= float64(e.rank.Sizes.DP)
			}
			r.Mixtures.Losses[loss] = append(r.Mixtures.Losses[loss], value)
		}
	}
	copies := float64(micros * e.rank.Sizes.World() / e.rank.Sizes.PP) // of a layer's quantiles
	means := device.ReadSlice[float64](e.device, quantiles)
	for i := range means {
		means[i] /= copies
	}
	for _, s := range e.Stages {
		s.BalanceExperts(r.Mixtures.Tokens, slices.Collect(slices.Chunk(means, experts)))
	}
	return e.device.Sync()
}

func floats(counts []int64) (all []float64) {
	for _, n := range counts {
		all = append(all, float64(n))
	}
	return all
}

// mixtureKinds are the groups that experts need besides a step's.
var mixtureKinds = []topology.Kind{topology.TPEP, topology.ExpertDP, topology.TPCP, topology.TPDPCP}
