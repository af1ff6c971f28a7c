package modelcase

import (
	"fmt"
	"strings"

	"monotron/megatron/engine"
)

// train makes the case's steps: the first gives gradients, all give the curve.
func (r *run) train(t *trial, want modelExpected, expected *tensors) error {
	steps := max(1, len(want.Curve))
	if steps > len(t.micros) {
		return r.bad("a curve of %d iterations with batches for %d", steps, len(t.micros))
	}
	for i := range steps {
		decay := t.Scheduler.WeightDecay()
		step, err := t.Step(t.micros[i : i+1])
		if err != nil {
			return err
		}
		if i == 0 {
			if err := r.compareFirst(t, step, want, expected); err != nil {
				return err
			}
		}
		if i < len(want.Curve) {
			if err := r.comparePoint(want.Curve[i], step, t.Scheduler.LR(), decay); err != nil {
				return err
			}
		}
		if err := r.compareParameters(t.subject, fmt.Sprintf("param_after_%d", i+1), expected); err != nil {
			return err
		}
	}
	return nil
}

// compareFirst compares loss, gradient norm and gradients before clipping.
func (r *run) compareFirst(t *trial, step engine.Result, want modelExpected, expected *tensors) error {
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
		if err := r.compare("gradients", name, got, expected, "gradient_rel_to_tensor_norm"); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) comparePoint(want curvePoint, step engine.Result, next, decay float64) error {
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
	name := fmt.Sprintf("iteration %d ", want.Iteration)
	r.report.number("curve", name+"loss", step.Loss, want.Loss, loss)
	r.report.relative("curve", name+"grad_norm", step.Update.GradNorm, want.GradNorm, norm)
	r.report.relative("curve", name+"lr_used", step.LR, want.LR, rate)
	r.report.relative("curve", name+"lr_printed", next, want.Printed, rate)
	if want.WeightDecay != nil {
		r.report.relative("curve", name+"weight_decay", decay, *want.WeightDecay, rate)
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
