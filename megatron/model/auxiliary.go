package model

import (
	"slices"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/spec"
)

// AuxiliaryLoss is a loss of the model's routers: it is logged apart from the model's loss,
// and its gradient is added to the step's. String gives the name in Megatron's log.
type AuxiliaryLoss int

const (
	LoadBalancingLoss AuxiliaryLoss = iota
	SeqLoadBalancingLoss
	GlobalLoadBalancingLoss
	ZLoss
	AuxiliaryLosses
)

func (l AuxiliaryLoss) String() string {
	return [...]string{"load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss", "z_loss"}[l]
}

// OwnLosses are the losses of routers that are logged, in Megatron's order. With a single type,
// Megatron-LM logs load_balancing_loss if the type's name contains aux_loss. So seq_aux_loss and
// global_aux_loss also log a load_balancing_loss of 0, which tools that parse the line expect.
func OwnLosses(e *spec.Experts) (all []AuxiliaryLoss) {
	for loss, kind := range map[AuxiliaryLoss]string{LoadBalancingLoss: spec.AuxLoss, SeqLoadBalancingLoss: spec.SeqAuxLoss, GlobalLoadBalancingLoss: spec.GlobalAuxLoss} {
		alone := loss == LoadBalancingLoss && len(e.Balancing) == 1 && strings.Contains(e.Balancing[0], kind)
		if alone || slices.Contains(e.Balancing, kind) {
			all = append(all, loss)
		}
	}
	if e.ZLossCoeff != 0 {
		all = append(all, ZLoss)
	}
	slices.Sort(all)
	return all
}

// Auxiliary collects what the layers of a stage report next to their output, summed over the
// micro-batches of a step: router losses and counts of tokens. Scale is the factor of these
// losses' gradients.
type Auxiliary struct {
	Scale Tensor // f32 [1]: a loss of one micro-batch's gradient is multiplied by it
	// f64 [AuxiliaryLosses, layers, 2]: sums over the micro-batches, without their coefficients; the second
	// number is not used.
	Losses    Tensor
	Tokens    Tensor      // f32 [layers, experts]: tokens that came to the experts here; where they are padded to capacity, of all
	Seen      Tensor      // f32 [layers, experts]: counts for the global loss, summed over the ranks that share it
	Moved     []int64     // [layers]: bytes of tokens, results and gradients that this rank sent to others
	Quantiles [][]float64 // [layers][experts]: sums over the micro-batches (--moe-router-load-balancing-type quantile_balancing)

	PerToken bool  // losses are sums over tokens (--calculate-per-token-loss)
	Bits     int64 // with --layout-invariant Losses are sums over samples, each rounded to so many binary digits; 0: over micro-batches
}

// NewAuxiliary allocates memory for a model's layers and experts; dtype is that of values.
func NewAuxiliary(d *device.Device, layers, experts int64, dtype device.DType) *Auxiliary {
	stats := device.F32
	if dtype == device.F64 {
		stats = device.F64
	}
	zeros := func(t device.DType, shape ...int64) Tensor { return d.Arena.Zeroed(device.Workspace, t, shape...) }
	quantiles := make([][]float64, layers)
	for i := range quantiles {
		quantiles[i] = make([]float64, experts)
	}
	return &Auxiliary{Quantiles: quantiles, Scale: zeros(device.F32, 1), Losses: zeros(device.F64, int64(AuxiliaryLosses), layers, 2),
		Tokens: zeros(stats, layers, experts), Seen: zeros(stats, layers, experts), Moved: make([]int64, layers)}
}

// Begin forgets the step before; scale is for this one's micro-batches.
func (a *Auxiliary) Begin(d *device.Device, scale float64) {
	if a == nil {
		return
	}
	for _, t := range []Tensor{a.Losses, a.Tokens, a.Seen} {
		d.Fill(t, 0)
	}
	clear(a.Moved)
	for _, layer := range a.Quantiles {
		clear(layer)
	}
	device.WriteSlice(d, a.Scale, []float32{float32(scale)})
}

// sums is the pair of numbers to which a layer adds a loss's values: f64 [2].
func (a *Auxiliary) sums(loss AuxiliaryLoss, layer int) Tensor {
	return a.Losses.At(int64(loss)).At(int64(layer))
}
