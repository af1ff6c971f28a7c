package telemetry

import (
	"errors"
	"time"
)

// Splits that an evaluation is over.
const (
	Validation = "validation"
	Test       = "test"
	Train      = "train" // an estimate on data that the run trains on
)

// Value is a number with a name, as in "lm loss".
type Value struct {
	Name  string
	Value float64
}

// Sample is how the model continued a text.
type Sample struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"` // the prompt, and what follows it
}

// Step is everything that one training step reports, or one evaluation, which has the
// first group of fields alone. Pointers that are nil were not asked for, or are not known.
type Step struct {
	Time            time.Time // when it ended
	Iteration       int       // trained so far, this one counted
	TrainIters      int       // of the complete run
	ConsumedSamples int64     // sequences trained on so far
	ConsumedTokens  int64
	Split           string   // of an evaluation: Validation, Test, Train; "": a training step
	Where           string   // of an evaluation: "iteration 5", "iteration 10 on test set"
	Losses          []Value  // nats a token, of this step alone: "lm loss", then those of multi-token prediction
	Written         []Sample // at an evaluation
	BitsPerByte     *float64 // of an evaluation whose text's bytes are known
	Accuracy        *float64 // of an evaluation of a tuning: share of the learned tokens that are predicted right
	Preference      []Value  // rewards_chosen, kl, reward, ..: what tuning by preferences or rewards reports of rows

	SkippedSamples  int64   // so far, by --decrease-batch-size-if-needed and --iterations-to-skip
	MoE             []Value // load_balancing_loss, z_loss, ..: means over the layers of experts
	MoELayers       []MixtureLayer
	GlobalBatchSize int // sequences that were trained on
	Tokens          int // of those

	LearningRate     float64 // this step was made with, like the next two
	WeightDecay      float64
	LossScale        float64
	NextLearningRate float64 // what the step after it will be made with
	NextLossScale    float64
	Skipped          bool     // gradients overflowed: nothing was updated
	GradNorm         *float64 // before clipping
	MTPGradNorm      *float64 // of layers of multi-token prediction that are clipped apart (--mtp-detach-heads)
	ParamsNorm       *float64
	NumZeros         *float64 // elements of the gradient
	WeightsHash      string   // after the step; "": not asked for

	Elapsed                         time.Duration // from asking for the batch to the update
	Data, Forward, Backward, Update time.Duration // of it, on this rank

	Ranks  int
	FLOPs  float64 // that one rank computed, by the formula of spec.Model
	Peak   float64 // operations a second that a rank can do; 0: not measured
	Memory Memory  // of this rank

	Line   *Interval // further values of a log line; nil: none is due
	Alerts []Alert
}

// Interval is what is reported of the steps since the log line before.
type Interval struct {
	Iterations      int        // of it, skipped ones too
	MemoryLine      bool       // the rank prints its memory
	Usage           *Usage     // of memory by purpose; nil: not asked for
	Timers          TimerTable // of all ranks
	RankMemory      []int64    // by rank: most device memory that was in use at once
	Work            Work
	Scores          *Scores // of the same; nil: there is one rank, or it is the first step
	Purposes        []Value // bytes that this rank has allocated for each purpose at most,
	PlannedPurposes []Value // and that the plan gave it; nil: without a plan
	Stages          string  // what each pipeline stage did; "": nothing
}

// TFLOPs are what one rank computed a second, in units of 1e12.
func (s *Step) TFLOPs() float64 { return s.FLOPs / s.Elapsed.Seconds() / 1e12 }

// MFU is the fraction of a rank's peak that the model's operations took; 0: not known.
func (s *Step) MFU() float64 {
	if s.Peak == 0 {
		return 0
	}
	return s.FLOPs / s.Elapsed.Seconds() / s.Peak
}

// perSecond is a rate over the step.
func (s *Step) perSecond(count int) float64 { return float64(count) / s.Elapsed.Seconds() }

// Sink takes the record of every step and evaluation, in their order.
type Sink interface {
	Take(*Step) error
	Close() error
}

// Sinks hand a step to each of them.
type Sinks []Sink

// Take stops at the first sink that fails.
func (all Sinks) Take(s *Step) error {
	for _, sink := range all {
		if err := sink.Take(s); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all.
func (all Sinks) Close() error {
	var problems []error
	for _, sink := range all {
		problems = append(problems, sink.Close())
	}
	return errors.Join(problems...)
}
