package modelcase

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/model"
)

// modelExpected are the numbers of a model case.
type modelExpected struct {
	Loss               float64
	LossWithoutPadding *float64 `json:"loss_without_padding"`
	GradNorm           float64  `json:"grad_norm"`
	Curve              []curvePoint
	Dispatched         map[string][][]int `json:"dispatched_tokens_per_expert_per_layer_and_microbatch"`
	Generation         []greedyText

	// What is compared by its parts, or said to the reader.
	Tokens        json.RawMessage `json:"tokens_per_expert_per_layer"`        // sums of Dispatched, and of the routers' choices
	Gap           json.RawMessage `json:"smallest_routing_gap_of_batch_0"`    // the nearest tie of a choice
	HFAux         json.RawMessage `json:"hf_aux_loss_unscaled"`               // transformers' own loss, which Megatron has not
	ScaledAux     json.RawMessage `json:"megatron_aux_loss_per_layer_scaled"` // the curve's first
	GradNormPlain json.RawMessage `json:"grad_norm_lm_only"`                  // without the auxiliary loss
}

type curvePoint struct {
	Iteration   int
	Loss        float64
	GradNorm    float64   `json:"grad_norm"`
	LR          float64   `json:"lr_used"`
	Printed     float64   `json:"lr_printed"`
	WeightDecay *float64  `json:"weight_decay"`
	MTPLosses   []float64 `json:"mtp_losses"`    // of each depth of multi-token prediction
	MTPGradNorm *float64  `json:"grad_norm_mtp"` // of detached heads
	mixturePoint
}

// runModel: the optimizer's curve; its first step shows forward and backward on batch 0
// with the initial weights.
func (r *run) runModel() error {
	var want modelExpected
	if err := r.full(&want); err != nil {
		return err
	}
	t, err := r.newTrial(r.caseFile)
	if err != nil {
		return err
	}
	expected, err := openTensors(r.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer expected.Close()
	if want.LossWithoutPadding != nil {
		if err := r.withoutPadding(t, *want.LossWithoutPadding, expected); err != nil {
			return err
		}
	}
	if err := r.train(t, want, expected); err != nil {
		return err
	}
	return r.continueTexts(want.Generation)
}

// trial is a subject with the case's batches.
type trial struct {
	*subject
	weights *weights
	batches []*engine.Micro // one a step, of all rows
}

// newTrial builds the model of a case and reads weights and batches of r's.
func (r *run) newTrial(c *caseFile) (*trial, error) {
	line, err := c.commandLine(positionsOf(c))
	if err != nil {
		return nil, err
	}
	return r.trialOf(c, line)
}

func (r *run) trialOf(c *caseFile, line []string) (*trial, error) {
	config, err := r.parse(line)
	if err != nil {
		return nil, err
	}
	megatrons(&config)
	w, _, err := r.openWeights(c)
	if err != nil {
		return nil, err
	}
	t := &trial{weights: w}
	if t.subject, err = newSubject(r.device, config, w); err != nil {
		return nil, err
	}
	t.batches, err = r.readBatches(&config)
	return t, err
}

// readBatches reads tokens, labels and loss_mask [step, row, seq].
func (r *run) readBatches(c *config.Run) ([]*engine.Micro, error) {
	f, err := openTensors(r.path(r.Batches, "batches.safetensors"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Three tensors of one shape, a micro-batch a step.
	shape, err := f.shaped("tokens", -1, -1, -1)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"labels", "loss_mask"} {
		if _, err := f.shaped(name, shape...); err != nil {
			return nil, err
		}
	}
	var micros []*engine.Micro
	for step := range int(shape[0]) {
		m, err := f.micro(c, step, shape[1], shape[2])
		if err != nil {
			return nil, fmt.Errorf("%s: step %d: %w", f.Path, step, err)
		}
		micros = append(micros, m)
	}
	if len(micros) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no steps", f.Path)
	}
	return micros, nil
}

func (t *tensors) micro(c *config.Run, step int, rows, columns int64) (*engine.Micro, error) {
	tokens, err := t.matrix("tokens", step, rows, columns)
	if err != nil {
		return nil, err
	}
	labels, err := t.matrix("labels", step, rows, columns)
	if err != nil {
		return nil, err
	}
	mask, err := t.mask("loss_mask", step, rows, columns)
	if err != nil {
		return nil, err
	}
	return newMicro(c, tokens, labels, mask, nil)
}

// step are the micro-batches of step i.
func (t *trial) step(i int) []*engine.Micro { return cutRows(t.batches[i], t.config.MicroBatchSize) }

// cutRows makes micro-batches of n rows.
func cutRows(all *engine.Micro, n int) (micros []*engine.Micro) {
	for at := 0; at < len(all.Tokens); at += n {
		to := min(at+n, len(all.Tokens))
		micros = append(micros, &engine.Micro{Tokens: all.Tokens[at:to], Labels: all.Labels[at:to], LossMask: all.LossMask[at:to],
			PositionIDs: all.PositionIDs[at:to], Samples: all.Samples[at:to]})
	}
	return micros
}

// forwardNumbers is what a pass over micro-batches shows, batch first: losses and choices
// of all, the others of the first.
type forwardNumbers struct {
	loss      float64 // Σ loss·mask / Σ mask
	tokenLoss []float64
	logits    []float64
	hidden    [][]float64
	routed    routings
	ahead     map[int][]float64 // logits of multi-token prediction by depth, from 0
	failed    error
}

func newForwardNumbers() *forwardNumbers {
	return &forwardNumbers{routed: routings{}, ahead: map[int][]float64{}}
}

// megatrons are the settings in which training here differs from Megatron-LM's unless it is asked
// for the same: padding in the softmax, means of context-parallel ranks.
func megatrons(c *config.Run) { c.Model.PaddedVocabCounts, c.LossMeanPerContextRank = true, true }

// forward runs micro-batches with the weights as they are.
func (s *subject) forward(micros []*engine.Micro) (*forwardNumbers, error) {
	found := newForwardNumbers()
	if err := s.Peek(micros, s.observe(found, micros)); err != nil {
		return nil, err
	}
	sum, counted, err := s.Loss(micros)
	found.loss = sum / max(1, counted)
	return found, errors.Join(err, found.failed)
}

// stepSeen is a step with what it shows.
func (s *subject) stepSeen(micros []*engine.Micro) (engine.Result, *forwardNumbers, error) {
	found := newForwardNumbers()
	step, err := s.StepSeen(micros, s.observe(found, micros))
	return step, found, errors.Join(err, found.failed)
}

// observe keeps what a pass over the micro-batches shows.
func (s *subject) observe(found *forwardNumbers, micros []*engine.Micro) engine.Observer {
	batch := func() int { return len(micros[s.Micro()].Tokens) }
	return engine.Observer{
		Layer: func(depth int, x device.Tensor) {
			if s.Micro() == 0 && depth < s.config.Model.NumLayers {
				found.hidden = append(found.hidden, batchFirst(read(s.device, x), batch(), s.config.Model.HiddenSize))
			}
		},
		Routed: func(layer int, r model.Routing) { found.routed.add(s.device, layer, batch(), r) },
		Ahead: func(depth int, p *model.Pass, x device.Tensor) {
			if s.Micro() == 0 {
				found.failed = errors.Join(found.failed, s.headAhead(found, depth, p, x))
			}
		},
		Done: func(p *model.Pass, out *model.Output) {
			found.tokenLoss = append(found.tokenLoss, batchFirst(read(s.device, out.Loss), batch(), 1)...)
			if s.Micro() == 0 {
				found.failed = errors.Join(found.failed, s.head(found, p, out))
			}
		},
	}
}

// head keeps the final norm's output and the logits.
func (s *subject) head(found *forwardNumbers, p *model.Pass, out *model.Output) error {
	batch := int(p.Batch)
	scope := s.device.Arena.Scope(device.Activations)
	defer scope.Release()
	normed := scope.Like(out.Hidden)
	s.Stages[0].Normed(p, normed, out.Hidden)
	found.hidden = append(found.hidden, batchFirst(read(s.device, normed), batch, s.config.Model.HiddenSize))
	columns := s.columns()
	logits := scope.Alloc(device.F32, p.Tokens(), int64(columns))
	err := s.Stages[0].Logits(p, logits, out.Hidden)
	found.logits = batchFirst(read(s.device, logits), batch, columns)
	return err
}

// columns is how many logits a token has.
func (s *subject) columns() int {
	if s.config.Model.PaddedVocabCounts {
		return s.config.Model.PaddedVocabSize
	}
	return s.config.Model.VocabSize
}

// headAhead keeps the logits of a depth of multi-token prediction.
func (s *subject) headAhead(found *forwardNumbers, depth int, p *model.Pass, x device.Tensor) error {
	scope := s.device.Arena.Scope(device.Activations)
	defer scope.Release()
	logits := scope.Alloc(device.F32, p.Tokens(), int64(s.columns()))
	err := s.Stages[0].AheadLogits(p, logits, x)
	found.ahead[depth-1] = batchFirst(read(s.device, logits), int(p.Batch), s.columns())
	return err
}

// compareForward compares everything in the file that one forward shows.
func (r *run) compareForward(t *trial, found *forwardNumbers, expected *tensors) error {
	for _, name := range expected.Names() {
		kind, rest, _ := strings.Cut(name, ".")
		got, tolerance := []float64(nil), kind+"_abs"
		switch kind {
		// Names of tensors say what they are: losses, logits, hidden states by layer, router outputs.
		case "token_loss":
			got = found.tokenLoss
		case "logits":
			got = found.logits
		case "mtp_logits":
			i, err := strconv.Atoi(rest)
			if err != nil || found.ahead[i] == nil {
				return exitcode.Errorf(exitcode.BadData, "%s: %q: the model has no such depth of multi-token prediction", expected.Path, name)
			}
			got, tolerance = found.ahead[i], "logits_abs"
		case "hidden":
			i, err := strconv.Atoi(rest)
			if err != nil || i < 0 || i >= len(found.hidden) {
				return exitcode.Errorf(exitcode.BadData, "%s: %q: the model has no such layer; it has %d layers", expected.Path, name, t.config.Model.NumLayers)
			}
			got = found.hidden[i]
		case "router":
			if err := r.compareRouted(t, found.routed, name, expected); err != nil {
				return err
			}
			continue
		case "token_loss_without_padding", "grad", "grad_lm_only", "param_after_1", "param_after_10": // compared by other functions
			continue
		default:
			return exitcode.Errorf(exitcode.BadData, "%s: a model case cannot compare %q", expected.Path, name)
		}
		if err := r.compare("forward", name, got, expected, tolerance); err != nil {
			return err
		}
	}
	return nil
}

// compare checks got against a tensor of the file: kinds of tolerance that end
// in _abs by the largest difference, others by norm.
func (r *run) compare(group, name string, got []float64, expected *tensors, tolerance string) error {
	want, err := expected.Float64(name)
	if err != nil {
		return err
	}
	limit, err := r.tolerance(tolerance)
	if err != nil {
		return err
	}
	if strings.HasSuffix(tolerance, "_abs") {
		r.report.within(group, name, got, want, limit)
	} else {
		r.report.byNorm(group, name, got, want, limit)
	}
	return nil
}

// withoutPadding: the softmax over the vocabulary alone, our default.
func (r *run) withoutPadding(t *trial, loss float64, expected *tensors) error {
	config := t.config
	config.Model.PaddedVocabCounts = false
	s, err := newSubject(r.device, config, t.weights)
	if err != nil {
		return err
	}
	found, err := s.forward(t.step(0))
	if err != nil {
		return err
	}
	limit, err := r.tolerance("curve_loss_abs", "token_loss_abs")
	if err != nil {
		return err
	}
	r.report.number("forward", "loss_without_padding", found.loss, loss, limit)
	if err := r.compare("forward", "token_loss_without_padding", found.tokenLoss, expected, "token_loss_abs"); err != nil {
		return err
	}
	t.subject, err = newSubject(r.device, t.config, t.weights)
	return err
}
