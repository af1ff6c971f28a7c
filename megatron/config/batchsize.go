package config

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// BatchSize is how one iteration is cut.
type BatchSize struct {
	Global  int // what the rule says
	Running int // what runs: Global, or less with --decrease-batch-size-if-needed
	Micros  int // micro-batches per data-parallel rank
}

// BatchSizes gives the batch size of an iteration from the samples consumed
// before it. Three rules: constant, ramp-up (the rule of Megatron core up to
// 0.16: --rampup-batch-size), steps (--step-batch-size-schedule).
type BatchSizes struct {
	micro, dp, final int
	decrease         bool
	ramp             []int // start, increment, samples
	steps            []batchStep
}

type batchStep struct{ samples, size int }

// NewBatchSizes reads the rule from c for dp data-parallel ranks.
func NewBatchSizes(c *Run, dp int) (*BatchSizes, error) {
	b := &BatchSizes{micro: c.MicroBatchSize, dp: dp, final: c.GlobalBatchSize, decrease: c.DecreaseBatchSizeIfNeeded}
	if b.micro < 1 || dp < 1 {
		return nil, exitcode.Errorf(exitcode.Usage, "--micro-batch-size %d with %d data-parallel ranks: both must be at least 1", b.micro, dp)
	}
	if c.StepBatchSizeSchedule != "" && len(c.RampupBatchSize) > 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--step-batch-size-schedule cannot be combined with --rampup-batch-size; give one")
	}
	var err error
	switch {
	case c.StepBatchSizeSchedule != "":
		err = b.readSteps(c.StepBatchSizeSchedule, c.SeqLength)
	case len(c.RampupBatchSize) > 0:
		err = b.readRamp(c.RampupBatchSize)
	default:
		_, err = b.cut(b.final, "--global-batch-size")
	}
	return b, err
}

// Check checks every size of the rule, so that none stops a run half-way.
func (b *BatchSizes) Check() error {
	if b.ramp != nil {
		for _, size := range []int{b.ramp[0], min(b.final, b.ramp[0]+b.ramp[1])} { // where these divide, all do
			if _, err := b.cut(size, "during --rampup-batch-size"); err != nil {
				return err
			}
		}
	}
	for _, s := range b.steps {
		if _, err := b.cut(s.size, fmt.Sprintf("from sample %d", s.samples)); err != nil {
			return err
		}
	}
	_, err := b.cut(b.final, "--global-batch-size")
	return err
}

func (b *BatchSizes) readRamp(ramp []int) error {
	if len(ramp) != 3 {
		return exitcode.Errorf(exitcode.Usage, "--rampup-batch-size needs three numbers (start, increment, samples), but has %d", len(ramp))
	}
	start, increment, samples := ramp[0], ramp[1], ramp[2]
	switch {
	case start < 1 || increment < 1 || samples < 0:
		return exitcode.Errorf(exitcode.Usage, "--rampup-batch-size %d %d %d: start and increment must be positive, and samples must not be negative", start, increment, samples)
	case samples/start > 1<<30:
		return exitcode.Errorf(exitcode.Usage, "--rampup-batch-size: %d samples in batches of %d would be too many steps; use fewer samples or larger batches", samples, start)
	case start > b.final:
		return exitcode.Errorf(exitcode.Usage, "--rampup-batch-size starts at %d, above --global-batch-size %d; lower the start", start, b.final)
	case (b.final-start)%increment != 0:
		return exitcode.Errorf(exitcode.Usage, "--rampup-batch-size: the difference between the start %d and --global-batch-size %d must be a multiple of the increment %d", start, b.final, increment)
	}
	b.ramp = ramp
	return nil
}

func (b *BatchSizes) readSteps(text string, seqLength int) error {
	if b.decrease {
		return exitcode.Errorf(exitcode.Usage, "--step-batch-size-schedule cannot be combined with --decrease-batch-size-if-needed; leave one out")
	}
	for _, entry := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		from, size, found := strings.Cut(entry, ":")
		threshold, ok1 := countWithSuffix(from)
		batch, ok2 := countWithSuffix(size)
		if !found || !ok1 || !ok2 || batch < 1 {
			return exitcode.Errorf(exitcode.Usage, "--step-batch-size-schedule: %q must have the form THRESHOLD:SIZE, as in 250B:1536", entry)
		}
		b.steps = append(b.steps, batchStep{threshold / max(1, seqLength), batch})
	}
	sort.SliceStable(b.steps, func(i, j int) bool { return b.steps[i].samples < b.steps[j].samples })
	if len(b.steps) == 0 || b.steps[0].samples != 0 {
		return exitcode.Errorf(exitcode.Usage, "--step-batch-size-schedule %q: the first threshold must be 0", text)
	}
	for i := 1; i < len(b.steps); i++ {
		if b.steps[i].samples == b.steps[i-1].samples {
			return exitcode.Errorf(exitcode.Usage, "--step-batch-size-schedule %q: two thresholds are at sample %d; remove one", text, b.steps[i].samples)
		}
	}
	b.final = b.steps[len(b.steps)-1].size
	return nil
}

// countWithSuffix reads 250B, 1.5K or 16: K, M, B, T are powers of a thousand.
func countWithSuffix(text string) (int, bool) {
	text = strings.ToUpper(strings.TrimSpace(text))
	factor := 1.0
	if n := len(text); n > 0 {
		if f, ok := map[byte]float64{'K': 1e3, 'M': 1e6, 'B': 1e9, 'T': 1e12}[text[n-1]]; ok {
			factor, text = f, text[:n-1]
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*factor > 1<<62 {
		return 0, false
	}
	return int(v * factor), true
}

// Final is the size once every rule has run its course.
func (b *BatchSizes) Final() int { return b.final }

// Largest is the largest size of the rule.
func (b *BatchSizes) Largest() int {
	largest := b.final // a ramp ends at its largest
	for _, s := range b.steps {
		largest = max(largest, s.size)
	}
	return largest
}

// At is the batch of the iteration that starts after consumed samples. It is an
// error when the size does not divide into micro-batches over all ranks.
func (b *BatchSizes) At(consumed int) (BatchSize, error) {
	return b.cut(b.sizeAt(consumed), fmt.Sprintf("after %d samples", consumed))
}

// cut divides a batch into micro-batches; when says when it is due.
func (b *BatchSizes) cut(size int, when string) (BatchSize, error) {
	step := b.micro * b.dp
	running := size
	if b.decrease {
		running = size / step * step
	}
	if running%step != 0 || running == 0 {
		return BatchSize{}, exitcode.Errorf(exitcode.Usage,
			"the global batch size %d (%s) is not a positive multiple of --micro-batch-size %d times %d data-parallel ranks: use %s", size, when, b.micro, b.dp, NearestMultiples(size, step))
	}
	return BatchSize{Global: size, Running: running, Micros: running / step}, nil
}

// NearestMultiples names the multiples of step next to size, for a message.
func NearestMultiples(size, step int) string {
	if size < step {
		return strconv.Itoa(step)
	}
	return fmt.Sprintf("%d or %d", size/step*step, (size/step+1)*step)
}

// sizeAt is the batch after so many samples: of --rampup-batch-size the start, and one
// increment more each time an equal share of its samples is consumed (Megatron's
// RampupBatchsizeNumMicroBatchesCalculator); then the final size.
func (b *BatchSizes) sizeAt(consumed int) int {
	if b.ramp != nil && consumed <= b.ramp[2] {
		start, increment, samples := b.ramp[0], b.ramp[1], b.ramp[2]
		increments := (b.final - start) / increment
		if increments == 0 || samples == 0 {
			return b.final
		}
		perIncrement := float64(samples) / float64(increments)
		return start + increment*int(float64(consumed)/perIncrement)
	}
	size := b.final
	for i := len(b.steps) - 1; i >= 0; i-- {
		size = b.steps[i].size
		if consumed >= b.steps[i].samples {
			break
		}
	}
	return size
}

// rampEnd is the number of samples after which the size no longer changes.
func (b *BatchSizes) rampEnd() int {
	switch {
	case b.ramp != nil:
		return b.ramp[2] + 1
	case b.steps != nil:
		return b.steps[len(b.steps)-1].samples
	}
	return 0
}

// Iterations is the number of complete batches in samples (--train-samples). While
// the size still grows, and with a step schedule, a last partial batch counts
// too, as in Megatron.
func (b *BatchSizes) Iterations(samples int) (int, error) {
	consumed, iterations := 0, 0
	for consumed < min(samples, b.rampEnd()) {
		now, err := b.At(consumed)
		if err != nil {
			return 0, err
		}
		consumed += now.Running
		iterations++
	}
	if consumed >= samples {
		return iterations, nil
	}
	now, err := b.At(consumed)
	if err != nil {
		return 0, err
	}
	left := samples - consumed
	if b.steps != nil {
		left += now.Running - 1
	}
	return iterations + left/now.Running, nil
}

// Consumed is the number of samples that the first iterations take.
func (b *BatchSizes) Consumed(iterations int) (int, error) {
	consumed := 0
	for i := range iterations {
		now, err := b.At(consumed)
		if err != nil {
			return 0, err
		}
		if consumed >= b.rampEnd() {
			return consumed + (iterations-i)*now.Running, nil
		}
		consumed += now.Running
	}
	return consumed, nil
}

// Iterations is the length of the complete training in steps: --train-iters, or as
// many as --train-samples makes.
func (c *Run) Iterations() (int, error) {
	if c.TrainIters > 0 {
		return c.TrainIters, nil
	}
	sizes, err := NewBatchSizes(c, max(1, c.Layout.DP))
	if err != nil {
		return 0, err
	}
	iterations, err := sizes.Iterations(c.TrainSamples)
	if err == nil && iterations == 0 && c.TrainSamples > 0 && !c.SkipTrain {
		err = exitcode.Errorf(exitcode.Usage, "--train-samples %d is less than one batch; raise it or lower --global-batch-size", c.TrainSamples)
	}
	return iterations, err
}

// CheckSchedule reports whether the pipeline can run every batch size of the run.
func (c *Run) CheckSchedule(b *BatchSizes) error {
	sizes := []int{b.final}
	for _, s := range b.steps {
		sizes = append(sizes, s.size)
	}
	if b.ramp != nil {
		for size := b.ramp[0]; size < b.final && len(sizes) < 1<<16; size += b.ramp[1] {
			sizes = append(sizes, size)
		}
	}
	for _, size := range sizes {
		now, err := b.cut(size, "")
		if err != nil {
			return nil // Check's matter
		}
		if err := c.PipelineSchedule(now.Micros, false).Check(); err != nil {
			return fmt.Errorf("in batches of %d samples: %w", size, err)
		}
	}
	return nil
}
