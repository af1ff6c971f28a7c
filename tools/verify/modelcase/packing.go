package modelcase

import (
	"sort"

	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
)

type packedExpected struct {
	Loss     float64
	Counted  float64 `json:"tokens_counted"`
	GradNorm float64 `json:"grad_norm"`
}

// runPacking: one batch of documents under several masks and position ids; the
// attention mask is given to the model as each query's first visible key.
func (r *run) runPacking() error {
	var want map[string]packedExpected
	if err := r.caseFile.expected(&want); err != nil {
		return err
	}
	expected, err := openTensors(r.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer expected.Close()
	batches, err := openTensors(r.path(r.Batches, "batches.safetensors"))
	if err != nil {
		return err
	}
	defer batches.Close()
	for _, name := range sorted(want) {
		if !r.wanted(name) {
			continue
		}
		if err := r.packed(name, want[name], batches, expected); err != nil {
			return err
		}
	}
	return nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (r *run) packed(name string, want packedExpected, batches, expected *tensors) error {
	s, err := r.sharedSubject(nil)
	if err != nil {
		return err
	}
	m, err := packedMicro(name, &s.config, batches)
	if err != nil {
		return err
	}
	// Losses of tokens, then the step.
	found, err := s.forward([]*engine.Micro{m})
	if err != nil {
		return err
	}
	step, err := s.Step([]*engine.Micro{m})
	if err != nil {
		return err
	}
	loss, err := r.tolerance("loss_abs", "token_loss_abs")
	if err != nil {
		return err
	}
	norm, err := r.tolerance("gradient_rel_to_tensor_norm")
	if err != nil {
		return err
	}
	// Count, loss, norm; then every token and gradient.
	r.report.exact(name, name+".tokens_counted", step.Tokens, want.Counted)
	r.report.number(name, name+".loss", step.Loss, want.Loss, loss)
	r.report.relative(name, name+".grad_norm", step.Update.GradNorm, want.GradNorm, norm)
	if err := r.compare(name, name+".token_loss", found.tokenLoss, expected, "token_loss_abs"); err != nil {
		return err
	}
	return r.compareGradients(s, name+".grad.", step.Factor, expected)
}

// packedMicro reads one of the ways to mask the case's tokens.
func packedMicro(name string, c *config.Run, f *tensors) (*engine.Micro, error) {
	shape, err := f.shaped("tokens", -1, -1)
	if err != nil {
		return nil, err
	}
	// Tokens [b, n], which all ways share, and what this way masks.
	b, n := shape[0], shape[1]
	for _, other := range []string{"labels", name + ".loss_mask", name + ".position_ids"} {
		if _, err := f.shaped(other, b, n); err != nil {
			return nil, err
		}
	}
	if _, err := f.shaped(name+".attention_blocked", b, n, n); err != nil {
		return nil, err
	}
	tokens, err := f.matrix("tokens", 0, b, n)
	if err != nil {
		return nil, err
	}
	labels, err := f.matrix("labels", 0, b, n)
	if err != nil {
		return nil, err
	}
	mask, err := f.mask(name+".loss_mask", 0, b, n)
	if err != nil {
		return nil, err
	}
	positions, err := f.matrix(name+".position_ids", 0, b, n)
	if err != nil {
		return nil, err
	}
	// A position is that of the row at most, and 0 at least.
	for j, row := range positions {
		for i, p := range row {
			if p < 0 || int(p) > i {
				return nil, exitcode.Errorf(exitcode.BadData, "%s: %s.position_ids, row %d: position %d has the id %d, which must be from 0 to the position", f.Path, name, j, i, p)
			}
		}
	}
	// Where each token's document starts, from the mask [b, n, n].
	m, err := newMicro(c, tokens, labels, mask, positions)
	if err != nil {
		return nil, err
	}
	m.DocStart, err = docStarts(name+".attention_blocked", b, n, f)
	return m, err
}

// docStarts turns a mask [b, q, k] into each query's first visible key; the
// visible keys must reach from there to the query itself.
func docStarts(name string, b, n int64, f *tensors) ([][]int32, error) {
	blocked, err := f.Int64(name)
	if err != nil {
		return nil, err
	}
	starts := make([][]int32, b)
	for j := range b {
		for q := range n {
			row := blocked[(j*n+q)*n:][:n]
			first := int64(0)
			for first < q && row[first] != 0 {
				first++
			}
			for k, v := range row {
				if (v != 0) != (int64(k) < first || int64(k) > q) {
					return nil, exitcode.Errorf(exitcode.BadData, "%s: %s: row %d, query %d: the visible keys are not a contiguous range that ends at the query", f.Path, name, j, q)
				}
			}
			starts[j] = append(starts[j], int32(first))
		}
	}
	return starts, nil
}

// sharedSubject is the model of the case that this one names; change, where
// given, adapts its settings.
func (r *run) sharedSubject(change func(*config.Run)) (*subject, error) {
	c, err := r.modelCase()
	if err != nil {
		return nil, err
	}
	w, config, err := r.openWeights(c)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(config)
	}
	return newSubject(r.device, *config, w)
}
