package training

import (
	"context"
	"io"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/internal/logging"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/ranks"
)

// Learner is a tuning's part in the steps of an engine that no run has: verify's.
type Learner struct{ run *Run }

// NewLearner completes a new adapter, and prepares a tuning that prefers: its objective, and the reference's
// log-probabilities of set, by the engine's weights without their adapter. All ranks call it together, after the
// weights have their start.
func NewLearner(rank *ranks.Rank, e *engine.Engine, c *config.Run, set dataset.Dataset) (*Learner, error) {
	r := &Run{Job: &Job{Config: *c}, Engine: e, rank: rank, device: rank.Device, log: &logger{rank: rank, notes: logging.New(io.Discard)}}
	if err := r.startMagnitudes(); err != nil || c.Tuning.Prefers() == nil {
		return &Learner{r}, err
	}
	r.prefer = newPreferring(&r.Config.Tuning)
	r.setObjective(r.prefer)
	if !r.prefer.loss.Reference {
		return &Learner{r}, nil
	}
	e.Bare = true
	defer func() { e.Bare = false }()
	return &Learner{r}, r.referenceOf(sft.PreferencesOf(set))
}

// Begin finds out what the steps of a global batch need to know of all its rows.
func (l *Learner) Begin(f *Feed, batch []*engine.Micro) error {
	return l.run.beginBatch(context.Background(), f, batch)
}
