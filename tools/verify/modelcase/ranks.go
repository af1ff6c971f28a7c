package modelcase

import (
	"bytes"
	"encoding/json"
	"slices"

	"monotron/megatron/schedule"
	"monotron/mpu"
)

// rankFile is what one of Megatron's ranks held and did.
type rankFile struct {
	Order      string         `json:"forward_backward_order_of_first_iteration"`
	Parameters parameterTable `json:"parameters"`
	NoDecay    []string       `json:"no_weight_decay"`
}

// parameterTable keeps the order of its JSON object: that of Megatron's modules.
type parameterTable struct {
	names  []string
	shapes map[string][]int64
}

func (t *parameterTable) UnmarshalJSON(raw []byte) error {
	var entries map[string]struct{ Shape []int64 }
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	t.shapes = map[string][]int64{}
	for name, e := range entries {
		t.shapes[name] = e.Shape
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return nil // its end: Unmarshal above has checked the syntax
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
		case string:
			if _, ok := entries[token]; ok && depth == 1 {
				t.names = append(t.names, token)
			}
		}
	}
}

// runRanks: a layout of one rank: parameters under Megatron's names and layouts,
// their gradients, the order of a step, and the curve.
func (r *run) runRanks() error {
	if len(r.Ranks) != 1 {
		return r.bad("%d ranks in a world of %d", len(r.Ranks), r.World)
	}
	var want modelExpected
	if err := r.whole(&want); err != nil {
		return err
	}
	c, err := r.modelCase()
	if err != nil {
		return err
	}
	t, err := r.trialOf(c, words(r.MegatronFlags))
	if err != nil {
		return err
	}
	ranks, err := openTensors(r.path("", "ranks.safetensors"))
	if err != nil {
		return err
	}
	defer ranks.Close()
	r.compareLayout(t.subject, r.Ranks[0])
	for _, p := range t.Params {
		if err := r.compare("parameters", "rank0.param."+p.Name, read(t.device, p.Main), ranks, "param_after_1_rel_to_tensor_norm"); err != nil {
			return err
		}
	}
	found, err := t.forward(t.micros[0])
	if err != nil {
		return err
	}
	if err := r.compare("forward", "rank0.token_loss", found.tokenLoss, ranks, "token_loss_abs"); err != nil {
		return err
	}
	if err := r.rankGradients(t, ranks); err != nil {
		return err
	}
	if t.subject, err = newSubject(r.device, t.config, t.weights); err != nil {
		return err
	}
	return r.train(t, want, ranks)
}

// compareLayout compares names, order, shapes, decay groups and the step's order.
func (r *run) compareLayout(s *subject, rank rankFile) {
	var names, noDecay []string
	for _, p := range s.Params {
		names = append(names, p.Name)
		if p.NoDecay {
			noDecay = append(noDecay, p.Name)
		}
		r.report.exact("layout", p.Name+" shape", p.Shape, rank.Parameters.shapes[p.Name])
	}
	slices.Sort(noDecay)
	r.report.exact("layout", "parameters in order", names, rank.Parameters.names)
	r.report.exact("layout", "no_weight_decay", noDecay, rank.NoDecay)
	acts := schedule.OneFOneB(0, 1, s.config.GlobalBatchSize/s.config.MicroBatchSize)
	r.report.exact("layout", "order of a step", schedule.Order(acts, 1), rank.Order)
}

// rankGradients compares the first step's gradients as the rank holds them.
func (r *run) rankGradients(t *trial, ranks *tensors) error {
	step, err := t.Step(t.micros[:1])
	if err != nil {
		return err
	}
	scaled := func(p *mpu.Param) []float64 {
		g := read(t.device, p.Grad)
		for i := range g {
			g[i] /= step.Factor
		}
		return g
	}
	for _, p := range t.Params {
		if err := r.compare("gradients", "rank0.grad."+p.Name, scaled(p), ranks, "gradient_rel_to_tensor_norm"); err != nil {
			return err
		}
	}
	return nil
}
