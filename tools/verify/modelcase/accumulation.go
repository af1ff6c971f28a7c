package modelcase

import (
	"encoding/json"
	"fmt"
	"strings"

	"monotron/megatron/config"
	"monotron/megatron/engine"
)

type accumulated struct {
	Loss     float64   `json:"logged_loss"`
	Losses   []float64 `json:"loss_of_each_microbatch"`
	Tokens   []float64 `json:"tokens_of_each_microbatch"`
	GradNorm float64   `json:"grad_norm"`

	Difference json.RawMessage `json:"largest_difference_from_one_batch_of_all_rows"` // of the peer itself
}

// runAccumulation: a global batch in micro-batches, with full and ragged masks.
func (r *run) runAccumulation() error {
	var want map[string]accumulated
	if err := r.caseFile.expected(&want); err != nil {
		return err
	}
	expected, err := openTensors(r.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer expected.Close()
	for _, name := range sorted(want) {
		if !r.wanted(name) {
			continue
		}
		if err := r.accumulate(name, want[name], expected); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (r *run) accumulate(name string, want accumulated, expected *tensors) error {
	perToken := strings.HasSuffix(name, "_per_token")
	s, err := r.sharedSubject(func(c *config.Run) { c.CalculatePerTokenLoss = perToken })
	if err != nil {
		return err
	}
	// The case's rows as micro-batches.
	micros, full, err := r.microBatches(strings.TrimSuffix(name, "_per_token"), &s.config)
	if err != nil {
		return err
	}
	loss, err := r.tolerance("loss_abs")
	if err != nil {
		return err
	}
	norm, err := r.tolerance("gradient_rel_to_tensor_norm")
	if err != nil {
		return err
	}
	if len(want.Losses) != len(micros) || len(want.Tokens) != len(micros) {
		return r.bad("%s: there are %d micro-batches, but %d losses and %d token counts", name, len(micros), len(want.Losses), len(want.Tokens))
	}
	// Each loss and count, then the step over all of them.
	for i, m := range micros {
		sum, tokens, err := s.Loss([]*engine.Micro{m})
		if err != nil {
			return err
		}
		r.report.number(name, fmt.Sprintf("%s.micro-batch %d loss", name, i), sum/max(1, tokens), want.Losses[i], loss)
		r.report.exact(name, fmt.Sprintf("%s.micro-batch %d tokens", name, i), tokens, want.Tokens[i])
	}
	step, err := s.Step(micros)
	if err != nil {
		return err
	}
	r.report.number(name, name+".logged_loss", step.Loss, want.Loss, loss)
	r.report.relative(name, name+".grad_norm", step.Update.GradNorm, want.GradNorm, norm)
	if err := r.compareGradients(s, name+".grad.", step.Factor, expected); err != nil {
		return err
	}
	// Equal to one batch of all rows.
	if name == "full_mask" {
		return r.compareFull(s, step.Factor, full, norm)
	}
	return nil
}

// compareFull: with nothing masked the gradient of the micro-batches is that of
// one batch of all rows.
func (r *run) compareFull(s *subject, factor float64, full *engine.Micro, limit float64) error {
	parts := map[string][]float64{}
	for _, name := range s.fileNames() {
		g, err := s.gradient(name, factor)
		if err != nil {
			return err
		}
		parts[name] = g
	}
	again, err := r.sharedSubject(nil)
	if err != nil {
		return err
	}
	step, err := again.Step([]*engine.Micro{full})
	if err != nil {
		return err
	}
	for _, name := range sorted(parts) {
		g, err := again.gradient(name, step.Factor)
		if err != nil {
			return err
		}
		r.report.byNorm("one batch of all rows", "full_mask.grad."+name, parts[name], g, limit)
	}
	return nil
}

// microBatches cuts the case's rows; full is all of them as one.
func (r *run) microBatches(mask string, c *config.Run) (micros []*engine.Micro, full *engine.Micro, err error) {
	f, err := openTensors(r.path(r.Batches, "batches.safetensors"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if r.MicroRows < 1 || r.MicroRows > 1<<16 || r.Micros > 1<<16 {
		return nil, nil, r.bad("there are %d micro-batches of %d rows; a case may have at most %d micro-batches, of 1 to %[3]d rows", r.Micros, r.MicroRows, 1<<16)
	}
	// Rows of tokens, labels and weights [rows, n].
	rows := int64(r.Micros) * int64(r.MicroRows)
	shape, err := f.shaped("tokens", rows, -1)
	if err != nil {
		return nil, nil, err
	}
	n := shape[1]
	if _, err := f.shaped("labels", rows, n); err != nil {
		return nil, nil, err
	}
	tokens, err := f.matrix("tokens", 0, rows, n)
	if err != nil {
		return nil, nil, err
	}
	labels, err := f.matrix("labels", 0, rows, n)
	if err != nil {
		return nil, nil, err
	}
	weights, err := f.lossMask(mask, rows, n)
	if err != nil {
		return nil, nil, err
	}
	// All in one, then cut.
	if full, err = newMicro(c, tokens, labels, weights, nil); err != nil {
		return nil, nil, err
	}
	for at := 0; at < len(tokens); at += r.MicroRows {
		to := at + r.MicroRows
		micros = append(micros, &engine.Micro{Tokens: tokens[at:to], Labels: labels[at:to], LossMask: weights[at:to],
			PositionIDs: full.PositionIDs[at:to], Samples: full.Samples[at:to]})
	}
	return micros, full, nil
}

// lossMask reads a mask [rows, n]; full_mask is stored nowhere: every token counts.
func (t *tensors) lossMask(name string, rows, n int64) ([][]float32, error) {
	if name == "full_mask" {
		ones := make([]float32, rows*n)
		for i := range ones {
			ones[i] = 1
		}
		return cut(ones, 0, rows, n, func(v float32) float32 { return v }), nil
	}
	if _, err := t.shaped(name, rows, n); err != nil {
		return nil, err
	}
	return t.mask(name, 0, rows, n)
}
