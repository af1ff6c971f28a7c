package modelcase

import (
	"fmt"

	"monotron/megatron/arguments"
	"monotron/megatron/engine"
)

// variant is one row of a flag-variants case.
type variant struct {
	Flags    string
	Refused  string // what Megatron said, where it did not run
	Loss     float64
	GradNorm float64 `json:"grad_norm"`
	Second   float64 `json:"loss_of_second_iteration"`
}

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
		if !r.wanted(name) || v.Refused != "" {
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
	if len(t.micros) < 2 {
		return r.bad("batches for %d iterations; two are needed", len(t.micros))
	}
	found, err := t.forward(t.micros[0])
	if err != nil {
		return err
	}
	var steps [2]engine.Result
	for i := range steps {
		if steps[i], err = t.Step(t.micros[i : i+1]); err != nil {
			return err
		}
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
	r.report.number(name, name+".loss", steps[0].Loss, v.Loss, loss)
	r.report.relative(name, name+".grad_norm", steps[0].Update.GradNorm, v.GradNorm, norm)
	r.report.number(name, name+".loss_of_second_iteration", steps[1].Loss, v.Second, loss)
	return nil
}
