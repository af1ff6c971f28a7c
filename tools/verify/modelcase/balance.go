package modelcase

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/checkpoint"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/megatron/spec"
)

// mixturePoint is what a curve has of layers of experts after a step. Layers are counted
// from 0, as text.
type mixturePoint struct {
	Load         *lossPoint           `json:"load_balancing_loss"`
	Seq          *lossPoint           `json:"seq_load_balancing_loss"`
	Global       *lossPoint           `json:"global_load_balancing_loss"`
	Z            *lossPoint           `json:"z_loss"`
	LoadAlone    *float64             `json:"load_balancing_loss_logged"`
	ScaledLosses []float64            `json:"aux_loss_per_layer"` // times their coefficients
	Bias         map[string][]float64 `json:"expert_bias"`
	Quantiles    map[string][]float64 `json:"qb_beta"`
	Tokens       map[string][]float64 `json:"tokens_per_expert"`
	Gap          *float64             `json:"smallest_routing_gap"` // between what a choice took and left, the step's smallest
	ExpertGap    json.RawMessage      `json:"smallest_expert_gap"`  // its older name, with other conventions
}

// lossPoint is one balancing loss: the mean over layers of experts, and each layer's.
type lossPoint struct {
	Logged   float64
	PerLayer []float64 `json:"per_layer"`
}

// biases are the routers', by layer as cases count them.
type biases map[string][]float64

// expertBias is the part of the biases, or quantiles, that an engine's stages have.
func expertBias(e *engine.Engine, m *spec.Model, d *device.Device) biases {
	all := biases{}
	for _, s := range e.Stages {
		for _, b := range s.Buffers(false) {
			name := strings.TrimPrefix(b.Name, checkpoint.Model)
			if layer := layerOf(m, name); layer >= 0 && checkpoint.IsBuffer(name) && strings.Contains(name, ".router.") {
				all[strconv.Itoa(layer)] = read(d, b.Tensor)
			}
		}
	}
	return all
}

// layerOf is the layer whose tensor this is, those of multi-token prediction after the
// decoder's; −1: it is of none.
func layerOf(m *spec.Model, name string) int {
	for layer := range m.AllLayers() {
		if strings.HasPrefix(name, m.LayerName(layer)+".") {
			return layer
		}
	}
	return -1
}

// compareMixtures compares what a step reported of its experts, and their biases after it. What
// is off is reported with the step's nearest tie: rounding may have chosen the other expert.
func (r *run) compareMixtures(m *spec.Model, name string, want mixturePoint, step engine.Result, after biases) error {
	if want.Gap != nil {
		defer r.report.noteFailed(len(r.report.Checks), fmt.Sprintf("nearest tie of a choice in this step: %.3g", *want.Gap))
	}
	// Losses as the step logged them, by layer.
	reported := map[model.AuxiliaryLoss]*lossPoint{model.LoadBalancingLoss: want.Load, model.SeqLoadBalancingLoss: want.Seq, model.GlobalLoadBalancingLoss: want.Global, model.ZLoss: want.Z}
	for loss := range model.AuxiliaryLosses {
		if p := reported[loss]; p != nil {
			if err := r.compareLoss(m, name+loss.String(), *p, step, loss); err != nil {
				return err
			}
		}
	}
	if want.ScaledLosses != nil {
		p := lossPoint{PerLayer: scaled(slices.Clone(want.ScaledLosses), 1/m.Experts.AuxLossCoeff[0])}
		p.Logged = meanOfMixtures(m, p.PerLayer)
		if err := r.compareLoss(m, name+"aux_loss_per_layer", p, step, model.LoadBalancingLoss); err != nil {
			return err
		}
	}
	if err := r.compareLoadAlone(m, name, want, step); err != nil {
		return err
	}
	// Tokens of each expert, and what the router keeps for the next step.
	for _, layer := range sorted(want.Tokens) {
		r.report.exact("experts", name+"tokens_per_expert of layer "+layer, tokensOf(step, layer), want.Tokens[layer])
	}
	for _, layer := range sorted(want.Bias) {
		limit, err := r.tolerance("expert_bias_abs")
		if err != nil {
			return err
		}
		r.report.within("experts", name+"expert_bias of layer "+layer, after[layer], want.Bias[layer], limit)
	}
	for _, layer := range sorted(want.Quantiles) { // quantiles of logits are as far off as they
		limit, err := r.tolerance("logits_abs")
		if err != nil {
			return err
		}
		r.report.within("experts", name+"qb_beta of layer "+layer, after[layer], want.Quantiles[layer], limit)
	}
	return nil
}

// compareLoadAlone compares a mean that stands without its layers' values. Of a model without
// this loss Megatron's log has 0.
func (r *run) compareLoadAlone(m *spec.Model, name string, want mixturePoint, step engine.Result) error {
	if want.LoadAlone == nil {
		return nil
	}
	limit, err := r.balanceTolerance()
	if err != nil {
		return err
	}
	r.report.relative("experts", name+"load_balancing_loss_logged", meanOfMixtures(m, step.Mixtures.Losses[model.LoadBalancingLoss]), *want.LoadAlone, limit)
	return nil
}

// balanceTolerance is that of balancing losses: the case's own, or where the curve may leave
// further that of its gradients' norms, as both are of the same weights.
func (r *run) balanceTolerance() (float64, error) {
	curve, err := r.tolerance("curve_grad_norm_rel", "grad_norm_rel")
	if own, given := r.Tolerance["aux_loss_rel"].(float64); given {
		curve = max(curve, own)
	}
	return curve, err
}

func (r *run) compareLoss(m *spec.Model, name string, want lossPoint, step engine.Result, loss model.AuxiliaryLoss) error {
	limit, err := r.balanceTolerance()
	if err != nil {
		return err
	}
	got := step.Mixtures.Losses[loss]
	r.report.byNorm("experts", name+" per layer", got, want.PerLayer, limit)
	r.report.byNorm("experts", name, []float64{meanOfMixtures(m, got)}, []float64{want.Logged}, limit)
	return nil
}

// tokensOf are a layer's; nil: the layer does not exist.
func tokensOf(step engine.Result, layer string) []float64 {
	if i, err := strconv.Atoi(layer); err == nil && i >= 0 && i < len(step.Mixtures.Tokens) {
		return step.Mixtures.Tokens[i]
	}
	return nil
}

// meanOfMixtures is over the layers that are mixtures.
func meanOfMixtures(m *spec.Model, perLayer []float64) float64 {
	sum, n := 0.0, 0.0
	for i, x := range perLayer {
		if m.MixtureAt(i) {
			sum, n = sum+x, n+1
		}
	}
	return sum / max(1, n)
}
