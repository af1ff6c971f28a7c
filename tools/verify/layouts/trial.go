package layouts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/megatron/training"
	"monotron/mpu"
	"monotron/mpu/ranks"
)

// Outcome is what a layout's training gave.
type Outcome struct {
	losses, norms []float64
	tokens        []float64 // counted, by step
	// By step: the loss, those of multi-token prediction and of layers of experts, the same on every rank;
	// last the evaluation.
	reported   [][]float64
	moved      float64   // Σ learning rate: how far AdamW moves an element at most
	evaluation float64   // loss of the first batch after training, without dropout
	samples    [][]int64 // read, by step, ascending
	grads      []tensors // by step, before clipping
	weights    tensors   // after the last step
	hidden     views     // of the first sample, before the training
	after      views     // of each sample of the first batch, after it, by sketches
	order      []string  // of the gradients, as the model has its parameters
	seconds    float64
}

// Setup changes a rank before it trains: how mutants are made.
type Setup struct {
	rank   func(*ranks.Rank)
	config func(*config.Run, *ranks.Rank)
	micro  func(*engine.Micro, *ranks.Rank)
}

// Train trains m for some steps under v, ranks as goroutines with a device each.
func Train(m Model, v Variant, steps int, open func() (*device.Device, error), s Setup) (*Outcome, error) {
	c, err := m.under(v)
	if err != nil {
		return nil, err
	}
	data, err := samplesOf(&c, steps)
	if err != nil {
		return nil, err
	}
	t := &trial{config: c, steps: steps, setup: s, data: data,
		out: &Outcome{grads: make([]tensors, steps), weights: tensors{}, samples: make([][]int64, steps)}}
	began := time.Now()
	err = ranks.Run(engine.Ranks(&c.Step, open), t.rank)
	t.out.seconds = time.Since(began).Seconds()
	for _, list := range t.out.samples {
		slices.Sort(list)
	}
	return t.out, err
}

// under is the model's settings under a variant.
func (m Model) under(v Variant) (config.Run, error) {
	c := m.Config
	c.Layout, c.Recompute, c.MicroBatchSize = v.Layout, v.Recompute, v.MicroBatch
	c.Layout.MicroBatchGroup = 0
	if c.Model.Experts != nil {
		e := *c.Model.Experts
		e.Dispatcher, e.SharedOverlap = v.Dispatcher, v.Overlap
		c.Model.Experts = &e
	}
	return c, c.SetVocab(vocabulary(&m.Config))
}

// vocabulary is the number of ids: of the flags, or the small model's.
func vocabulary(c *config.Run) int {
	n := 131
	if c.Tokenizer.VocabSize > 0 {
		n = c.Tokenizer.VocabSize
	}
	if c.Tuning.Data != "" {
		n++ // the token that ends texts
	}
	return n
}

// samples are what is trained on.
type samples interface {
	set() dataset.Dataset
	number(row []int32) int64 // which of them has these tokens
}

// samplesOf are random tokens, or rows of a tuning.
func samplesOf(c *config.Run, steps int) (samples, error) {
	if c.Tuning.Data != "" {
		return newTuned(c, steps)
	}
	return newNumbers(c, steps), nil
}

// trial is a training under way; the ranks fill out.
type trial struct {
	config config.Run
	steps  int
	setup  Setup
	data   samples
	mu     sync.Mutex
	out    *Outcome
}

func (t *trial) rank(r *ranks.Rank) error {
	c := t.config
	// Mutants change ranks or their configuration.
	if t.setup.rank != nil {
		t.setup.rank(r)
	}
	if t.setup.config != nil {
		t.setup.config(&c, r)
	}
	// The rank as a run makes it, and its data.
	schedule, err := c.Optimizer.Schedule(c.TrainIters, c.TrainSamples, c.GlobalBatchSize)
	if err != nil {
		return err
	}
	e, err := engine.New(r, c.Step, schedule)
	if err != nil {
		return err
	}
	if err := e.Initialize(); err != nil {
		return err
	}
	feed, err := training.NewFeed(&c, t.data.set(), dataset.Train, r.Coordinates.DP)
	if err != nil {
		return err
	}
	learner, err := training.NewLearner(r, e, &c, t.data.set())
	if err != nil {
		return err
	}
	return t.train(r, e, learner, feed, c.GlobalBatchSize/(c.MicroBatchSize*r.Sizes.DP))
}

func (t *trial) train(r *ranks.Rank, e *engine.Engine, learner *training.Learner, feed *training.Feed, micros int) error {
	var first []*engine.Micro
	for step := range t.steps {
		batch, err := feed.Batch(int64(step*t.config.GlobalBatchSize), micros)
		if err != nil {
			return err
		}
		t.note(r, step, batch)
		if err := learner.Begin(feed, batch); err != nil {
			return err
		}
		if step == 0 {
			first = batch
			if err := t.observe(r, e, batch[0]); err != nil {
				return err
			}
		}
		result, err := e.Step(batch)
		if err != nil {
			return err
		}
		if err := t.keep(r, e, step, result); err != nil {
			return err
		}
	}
	return t.evaluate(r, e, first)
}

// note records which samples a rank was given; a tensor-, context- and
// pipeline-parallel group is given the same ones.
func (t *trial) note(r *ranks.Rank, step int, batch []*engine.Micro) {
	for _, m := range batch {
		if t.setup.micro != nil {
			t.setup.micro(m, r)
		}
		if r.Coordinates.TP != 0 || r.Coordinates.PP != 0 || r.Coordinates.CP != 0 {
			continue
		}
		t.mu.Lock()
		for _, row := range m.Tokens {
			t.out.samples[step] = append(t.out.samples[step], t.data.number(row))
		}
		t.mu.Unlock()
	}
}

// keep records a step: the loss, the gradients, the weights after the last.
func (t *trial) keep(r *ranks.Rank, e *engine.Engine, step int, result engine.Result) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What every rank says must be the same.
	if err := t.out.hear(r.Number, step, reported(result)); err != nil {
		return err
	}
	if r.Last() {
		t.out.losses, t.out.norms = append(t.out.losses, result.Loss), append(t.out.norms, result.Update.GradNorm)
		t.out.tokens = append(t.out.tokens, result.Tokens)
		t.out.moved += result.LR
	}
	if t.out.grads[step] == nil {
		t.out.grads[step] = tensors{}
	}
	// Gradients of every step, put together from the ranks' parts; weights after the last.
	for _, s := range e.Gradients() {
		if step == 0 {
			t.out.order = append(t.out.order, s.Name)
		}
		if err := t.out.grads[step].add(r.Number, r.Device, s, result.Factor); err != nil {
			return exitcode.Errorf(exitcode.Differs, "step %d: gradient of %w", step+1, err)
		}
	}
	if step < t.steps-1 {
		return nil
	}
	for _, s := range mains(e) {
		if err := t.out.weights.add(r.Number, r.Device, s, 1); err != nil {
			return exitcode.Errorf(exitcode.Differs, "weight %w", err)
		}
	}
	return nil
}

// reported is what a step reports on every rank.
func reported(r engine.Result) []float64 {
	all := append([]float64{r.Loss}, r.Ahead...)
	if r.Mixtures != nil {
		all = append(all, slices.Concat(r.Mixtures.Losses[:]...)...)
	}
	return all
}

// hear keeps what the first rank reports of a step, or of the evaluation behind the last; the
// others must tell the same.
func (o *Outcome) hear(rank, step int, numbers []float64) error {
	if step == len(o.reported) {
		o.reported = append(o.reported, numbers)
		return nil
	}
	if !slices.Equal(numbers, o.reported[step]) {
		return exitcode.Errorf(exitcode.Differs, "step %d: rank %d reports the losses %v, but another rank reports %v", step+1, rank, numbers, o.reported[step])
	}
	return nil
}

// mains are the weights as the optimizer keeps them: in half precision the values
// are those rounded, and near 1 a rounding is more than a step.
func mains(e *engine.Engine) (all []mpu.Stored) {
	for _, s := range e.Optimizer.Stored() {
		if name, is := strings.CutPrefix(s.Name, optimizer.StoredMain); is {
			s.Name = name
			all = append(all, s)
		}
	}
	if all == nil {
		return e.Weights()
	}
	return all
}

// numbers is a dataset of random tokens; a sample's first tokens are its number. Where the
// flags of masks ask for it, documents of random lengths end in it, and much of some samples
// has no loss.
type numbers struct {
	vocab, seq                    int
	n                             int64
	restarts, hidden, lossesEnded bool // positions, and keys, of earlier documents; losses
}

func newNumbers(c *config.Run, steps int) *numbers {
	d := &c.Data
	return &numbers{vocab: c.Model.VocabSize, seq: c.SeqLength, n: int64(steps * c.GlobalBatchSize),
		restarts: d.ResetPositionIDs || d.InterDocumentMasking, hidden: hidesDocuments(c), lossesEnded: d.EODMaskLoss}
}

// hidesDocuments reports whether documents do not see each other.
func hidesDocuments(c *config.Run) bool {
	return c.Data.ResetAttentionMask || c.Data.InterDocumentMasking
}

func (d *numbers) set() dataset.Dataset { return d }

func (d *numbers) Len() int64 { return d.n }

func (d *numbers) Sample(k int64) (dataset.Sample, error) {
	if k < 0 || k >= d.n {
		return dataset.Sample{}, fmt.Errorf("sample %d is out of range: there are %d samples", k, d.n)
	}
	r := rand.New(rand.NewPCG(uint64(k), 7))
	ids := make([]int32, d.seq+1)
	for i := range ids {
		ids[i] = int32(r.IntN(d.vocab))
	}
	ids[0], ids[1] = int32(k/int64(d.vocab)), int32(k%int64(d.vocab))
	s := dataset.Sample{Tokens: ids[:d.seq], Labels: ids[1:], LossMask: make([]float32, d.seq), PositionIDs: make([]int32, d.seq), DocStart: make([]int32, d.seq)}
	d.mask(&s, r)
	return s, nil
}

// mask fills masks and positions.
func (d *numbers) mask(s *dataset.Sample, r *rand.Rand) {
	start, last := int32(0), d.seq
	if d.lossesEnded {
		last = 1 + r.IntN(d.seq)
	}
	for i := range d.seq {
		if i > 0 && (d.restarts || d.hidden) && r.IntN(6) == 0 {
			start = int32(i)
		}
		s.PositionIDs[i] = int32(i)
		if d.restarts {
			s.PositionIDs[i] -= start
		}
		if d.hidden {
			s.DocStart[i] = start
		}
		if i < last {
			s.LossMask[i] = 1
		}
	}
}

// number is the sample that begins with these tokens.
func (d *numbers) number(row []int32) int64 { return int64(row[0])*int64(d.vocab) + int64(row[1]) }
