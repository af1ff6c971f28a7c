package training

import (
	"context"
	"errors"

	"monotron/megatron/engine"
	"monotron/megatron/telemetry"
)

// errStopped says that the run was asked to stop during what comes before a step.
var errStopped = errors.New("asked to stop")

// objective is a loss of rows: engine.Objective with a run's further methods.
type objective interface {
	engine.Objective
	// begin finds out what a pass over a global batch needs to know of all its rows. All ranks call it
	// together. The error is errStopped where a rank was asked to stop meanwhile; nothing has changed then.
	begin(ctx context.Context, r *Run, f *Feed, batch []*engine.Micro) error
	// beginEvaluation does the same before an evaluation over so many batches.
	beginEvaluation(r *Run, f *Feed, consumed int64, iters, micros int) error
	// values are what the rows since then tell, of all ranks.
	values(r *Run) ([]telemetry.Value, error)
}

// setObjective has the engine weigh tokens by an objective.
func (r *Run) setObjective(o objective) { r.objective, r.Engine.Objective, r.bytes = o, o, nil }

// beginBatch passes the objective, if any, the batch that a feed is about to give.
func (r *Run) beginBatch(ctx context.Context, f *Feed, batch []*engine.Micro) error {
	if r.objective == nil || r.device.Counts() {
		return nil
	}
	return r.objective.begin(ctx, r, f, batch)
}
