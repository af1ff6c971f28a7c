package modelcase

import (
	"fmt"
	"strings"

	"monotron/megatron/arguments"
)

// variant is one row of a flag-variants case.
type variant struct {
	Flags    string
	Refused  string // what Megatron said, where it did not run
	Loss     float64
	GradNorm float64 `json:"grad_norm"`
	Second   float64 `json:"loss_of_second_iteration"`
	mixturePoint
}

// byPosition is what Megatron leaves to torch.topk's choice among equals, which is not a rule.
const byPosition = "--moe-token-drop-policy position"

// runVariants: the case's flags changed one at a time, same weights and batches.
func (r *run) runVariants() error {
	expected, err := openTensors(r.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer expected.Close()
	c, err := r.modelCase()
	if err != nil {
		return err
	}
	for _, name := range sorted(r.Variants) {
		v := r.Variants[name]
		if !r.wanted(name) || v.Refused != "" || strings.Contains(v.Flags, byPosition) {
			continue
		}
		if err := r.variant(c, name, v, expected); err != nil {
			return fmt.Errorf("variant %s (%s): %w", name, v.Flags, err)
		}
	}
	return nil
}

func (r *run) variant(c *caseFile, name string, v variant, expected *tensors) error {
	t, err := r.trialOf(c, arguments.Override(words(r.BaseFlags), words(v.Flags)))
	if err != nil {
		return err
	}
	if len(t.batches) < 2 {
		return r.bad("there are batches for %d iterations, but two are needed", len(t.batches))
	}
	// Two iterations: the second shows the update of the first.
	first, found, err := t.stepSeen(t.step(0))
	if err != nil {
		return err
	}
	second, err := t.Step(t.step(1))
	if err != nil {
		return err
	}
	loss, err := r.tolerance("loss_abs", "token_loss_abs")
	if err != nil {
		return err
	}
	norm, err := r.tolerance("grad_norm_rel")
	if err != nil {
		return err
	}
	if err := r.compare(name, name+".token_loss", found.tokenLoss, expected, "token_loss_abs"); err != nil {
		return err
	}
	r.report.number(name, name+".loss", first.Loss, v.Loss, loss)
	r.report.relative(name, name+".grad_norm", first.Update.GradNorm, v.GradNorm, norm)
	r.report.number(name, name+".loss_of_second_iteration", second.Loss, v.Second, loss)
	if t.config.Model.Experts == nil {
		return nil
	}
	return r.compareMixtures(&t.config.Model, name+".", v.mixturePoint, first, nil)
}
