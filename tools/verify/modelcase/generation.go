package modelcase

import (
	"encoding/json"
	"fmt"
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/inference"
	"monotron/megatron/model"
)

// continued is what the peer generated after one prompt: "greedy" and beam
// searches by name.
type continued struct {
	prompt []int32
	greedy greedyExpected
	beams  map[string]beamExpected
}

type greedyExpected struct {
	IDs      []int32
	LogProbs []float64 `json:"log_probs"`
}

type beamExpected struct {
	IDs           [][]int32
	Scores        []float64
	Stop          *int32   `json:"eos_token_id"`
	Penalty       *float64 `json:"length_penalty"`
	EarlyStopping bool     `json:"early_stopping"`
}

// greedyText is what a model case continues a prompt with, taking the likeliest token.
type greedyText struct {
	Prompt   []int32 `json:"prompt_ids"`
	IDs      []int32
	LogProbs []float64 `json:"log_probs"`

	Gap   json.RawMessage `json:"smallest_logit_gap_to_second"`
	Float json.RawMessage `json:"float32_run_gives_the_same_ids"`
}

// continueTexts generates with the case's initial weights, token by token from the cache of
// keys and values; ids are exact. A log probability is the difference of a logit and a
// log-sum-exp of logits: it is off by at most twice what a logit may be.
func (r *run) continueTexts(texts []greedyText) error {
	if len(texts) == 0 {
		return nil
	}
	limit, err := r.tolerance("logits_abs")
	if err != nil {
		return err
	}
	longest := 0
	for _, text := range texts {
		longest = max(longest, len(text.Prompt)+len(text.IDs))
	}
	g, err := r.generator(longest)
	if err != nil {
		return err
	}
	for i, text := range texts {
		got, err := g.Sample(text.Prompt, inference.SampleOptions{MaxNew: len(text.IDs)})
		if err != nil {
			return fmt.Errorf("generation %d: %w", i, err)
		}
		r.report.exact("generation", fmt.Sprintf("text %d ids", i), got.IDs, text.IDs)
		r.report.within("generation", fmt.Sprintf("text %d log_probs", i), got.LogProbs, text.LogProbs, 2*limit)
	}
	return nil
}

// newTokens and fill are the peers' settings: 20 new tokens, finished sequences
// filled up with id 127.
const (
	newTokens = 20
	fill      = 127
)

// UnmarshalJSON sorts a prompt's entries by what they are.
func (c *continued) UnmarshalJSON(raw []byte) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	c.beams = map[string]beamExpected{}
	for name, part := range parts {
		var err error
		switch name {
		case "prompt":
		case "prompt_ids":
			err = json.Unmarshal(part, &c.prompt)
		case "greedy":
			err = json.Unmarshal(part, &c.greedy)
		default:
			var b beamExpected
			err = json.Unmarshal(part, &b)
			c.beams[name] = b
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// runGeneration: greedy and beam search after each prompt; ids are exact.
func (r *run) runGeneration() error {
	var want []continued
	if err := r.caseFile.expected(&want); err != nil {
		return err
	}
	limit, err := r.tolerance("scores_abs")
	if err != nil {
		return err
	}
	g, err := r.generator(0)
	if err != nil {
		return err
	}
	for i, c := range want {
		if err := r.generate(g, fmt.Sprintf("prompt %d ", i), c, limit); err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
	}
	return nil
}

// generator is the case's model for generation alone, of texts of up to so many tokens; at
// least of those that it is trained on.
func (r *run) generator(tokens int) (*inference.Generator, error) {
	w, config, err := r.openWeights(r.caseFile)
	if err != nil {
		return nil, err
	}
	r.device.Arena.Close()
	layers := make([]int, config.Model.NumLayers)
	for i := range layers {
		layers[i] = i
	}
	stage, err := model.NewStage(r.device, model.StageConfig{Model: &config.Model, Layers: layers, Embedding: true, Head: true, DType: device.F32},
		model.Alone(r.device))
	if err != nil {
		return nil, err
	}
	positions := max(config.SeqLength, tokens)
	stage.Materialize(positions, false)
	for _, p := range stage.Params() {
		if err := w.fill(r.device, p); err != nil {
			return nil, err
		}
	}
	if err := w.fillBuffers(r.device, []*model.Stage{stage}); err != nil {
		return nil, err
	}
	return &inference.Generator{Device: r.device, Stages: []*model.Stage{stage}, DType: device.F32, Vocab: config.Model.VocabSize, MaxContext: positions}, nil
}

func (r *run) generate(g *inference.Generator, prefix string, c continued, limit float64) error {
	// The likeliest tokens, then every setting of beams.
	if r.wanted("greedy") {
		got, err := g.Sample(c.prompt, inference.SampleOptions{MaxNew: newTokens})
		if err != nil {
			return err
		}
		r.report.exact("greedy", prefix+"ids", got.IDs, c.greedy.IDs)
		r.report.within("greedy", prefix+"log_probs", got.LogProbs, c.greedy.LogProbs, limit)
	}
	for _, name := range sorted(c.beams) {
		if !r.wanted(name) {
			continue
		}
		want := c.beams[name]
		if len(want.IDs) < 1 || len(want.IDs) > 64 {
			return r.bad("%s: there are %d beams; a case may have 1 to 64", name, len(want.IDs))
		}
		o := inference.BeamOptions{Beams: len(want.IDs), MaxNew: newTokens, LengthPenalty: 1, EarlyStopping: want.EarlyStopping}
		if want.Penalty != nil {
			o.LengthPenalty = *want.Penalty
		}
		if want.Stop != nil {
			o.Ends = []int32{*want.Stop}
		}
		got, err := g.Beam(c.prompt, o)
		if err != nil {
			return err
		}
		ids, scores := filled(got)
		r.report.exact(name, prefix+name+" ids", ids, want.IDs)
		r.report.within(name, prefix+name+" scores", scores, want.Scores, limit)
	}
	return nil
}

// filled brings all sequences to the length of the longest.
func filled(beams []inference.Beam) (ids [][]int32, scores []float64) {
	longest := 0
	for _, b := range beams {
		longest = max(longest, len(b.IDs))
	}
	for _, b := range beams {
		row := slices.Clone(b.IDs)
		for len(row) < longest {
			row = append(row, fill)
		}
		ids, scores = append(ids, row), append(scores, b.Score)
	}
	return ids, scores
}
