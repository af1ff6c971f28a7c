package modelcase

import (
	"fmt"
	"slices"
	"strings"

	"monotron/megatron/engine"
	"monotron/megatron/spec"
)

// train makes the case's steps: the first gives gradients, all give the curve.
func (r *run) train(t *trial, want modelExpected, expected *tensors) error {
	steps := max(1, len(want.Curve))
	if steps > len(t.batches) {
		return r.bad("the curve has %d iterations, but there are batches for only %d", steps, len(t.batches))
	}
	// A step; the first has gradients to compare, each a point of the curve and maybe parameters.
	for i := range steps {
		decay := t.Scheduler.WeightDecay()
		step, found, err := t.stepSeen(t.step(i))
		if err != nil {
			return err
		}
		if i == 0 {
			if err := r.compareFirst(t, step, found, want, expected); err != nil {
				return err
			}
		}
		if i < len(want.Curve) {
			reported := stepSeen{step, t.Scheduler.LR(), decay, expertBias(t.Engine, &t.config.Model, t.device)}
			if err := r.comparePoint(&t.config.Model, want.Curve[i], reported); err != nil {
				return err
			}
		}
		if err := r.compareParameters(t.subject, fmt.Sprintf("param_after_%d", i+1), expected); err != nil {
			return err
		}
	}
	return nil
}

// compareFirst compares the forward pass, loss, gradient norm and gradients before clipping.
func (r *run) compareFirst(t *trial, step engine.Result, found *forwardNumbers, want modelExpected, expected *tensors) error {
	if err := r.compareForward(t, found, expected); err != nil {
		return err
	}
	if m := &t.config.Model; m.Experts != nil && !m.Experts.PadToCapacity {
		for _, layer := range sorted(want.Dispatched) {
			r.report.exact("routers", "dispatched tokens of layer "+layer, found.routed.of(layer).micros, want.Dispatched[layer])
		}
	}
	if err := r.compareLosses(step, want); err != nil {
		return err
	}
	return r.compareGradients(t.subject, "grad.", step.Factor, expected)
}

// compareLosses compares the first step's loss and gradient norm.
func (r *run) compareLosses(step engine.Result, want modelExpected) error {
	loss, err := r.tolerance("curve_loss_abs", "token_loss_abs")
	if err != nil {
		return err
	}
	norm, err := r.tolerance("curve_grad_norm_rel", "gradient_rel_to_tensor_norm")
	if err != nil {
		return err
	}
	r.report.number("first step", "loss", step.Loss, want.Loss, loss)
	r.report.relative("first step", "grad_norm", step.Update.GradNorm, want.GradNorm, norm)
	return nil
}

// compareGradients compares every tensor of the file whose name has the prefix.
func (r *run) compareGradients(s *subject, prefix string, factor float64, expected *tensors) error {
	for _, name := range expected.Names() {
		theirs, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		got, err := s.gradient(theirs, factor)
		if err != nil {
			return err
		}
		if zero, err := r.exactlyZero(theirs, len(got)); err != nil {
			return err
		} else if zero {
			limit, err := r.tolerance("gradient_rel_to_tensor_norm")
			if err != nil {
				return err
			}
			r.report.byNorm("gradients", name, got, make([]float64, len(got)), limit)
			continue
		}
		if err := r.compare("gradients", name, got, expected, "gradient_rel_to_tensor_norm"); err != nil {
			return err
		}
	}
	return nil
}

// exactlyZero reports a tensor of which the case leaves every element out of later comparisons,
// since the exact gradient is zero (exclude_from_param_comparison): the file has another
// program's rounding errors there, whose norm says nothing.
func (r *run) exactlyZero(name string, n int) (bool, error) {
	out, err := r.excluded(name, n)
	return len(out) > 0 && !slices.Contains(out, false), err
}

func (r *run) comparePoint(m *spec.Model, want curvePoint, step stepSeen) error {
	loss, err := r.tolerance("curve_loss_abs")
	if err != nil {
		return err
	}
	norm, err := r.tolerance("curve_grad_norm_rel")
	if err != nil {
		return err
	}
	rate, err := r.tolerance("learning_rate_rel")
	if err != nil {
		return err
	}
	// Loss and norm.
	name := fmt.Sprintf("iteration %d ", want.Iteration)
	r.report.number("curve", name+"loss", step.Loss, want.Loss, loss)
	r.report.relative("curve", name+"grad_norm", step.Update.GradNorm, want.GradNorm, norm)
	// Losses of further tokens.
	if len(want.MTPLosses) != len(step.Ahead) {
		return r.bad("iteration %d has %d losses of multi-token prediction, but the model predicts %d tokens beyond the next", want.Iteration, len(want.MTPLosses), len(step.Ahead))
	}
	for d, mtp := range want.MTPLosses {
		r.report.number("curve", fmt.Sprintf("%smtp_%d loss", name, d+1), step.Ahead[d], mtp, loss)
	}
	if want.MTPGradNorm != nil {
		r.report.relative("curve", name+"grad_norm_mtp", step.Update.OwnNorm, *want.MTPGradNorm, norm)
	}
	// Rates: the one used, and the one that Megatron prints after the step.
	r.report.relative("curve", name+"lr_used", step.LR, want.LR, rate)
	r.report.relative("curve", name+"lr_printed", step.next, want.Printed, rate)
	if want.WeightDecay != nil {
		r.report.relative("curve", name+"weight_decay", step.decay, *want.WeightDecay, rate)
	}
	if m.Experts != nil {
		return r.compareMixtures(m, name, want.mixturePoint, step.Result, step.bias)
	}
	return nil
}

// compareParameters compares the parameters after a step with all tensors of
// the file that carry its name, less the elements that the case excludes.
func (r *run) compareParameters(s *subject, after string, expected *tensors) error {
	for _, name := range expected.Names() {
		theirs, ok := strings.CutPrefix(name, after+".")
		if !ok {
			continue
		}
		got, err := s.parameter(theirs)
		if err != nil {
			return err
		}
		if err := r.compareExcluding(r.caseFile, after, name, theirs, got, expected, after+"_rel_to_tensor_norm"); err != nil {
			return err
		}
	}
	return nil
}

// without drops the marked elements.
func without(x []float64, skip []bool) []float64 {
	if skip == nil || len(skip) != len(x) {
		return x
	}
	var out []float64
	for i, v := range x {
		if !skip[i] {
			out = append(out, v)
		}
	}
	return out
}
