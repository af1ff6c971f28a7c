package training

import (
	"context"
	"errors"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/engine"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
)

// Train runs until the last iteration or a reason to stop. The error carries
// the exit code; nil is done.
func (r *Run) Train(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.log.close(), r.prints.close(), r.Engine.Close()) }()
	defer r.memory.Close()
	defer r.saver.awaitTensors() // the device may be closed then
	watching, stop := context.WithCancel(ctx)
	defer stop()
	r.watchGPUs(watching)
	err = r.train(ctx)
	if code := exitcode.CodeOf(err); code == exitcode.Done || code == exitcode.Again { // all ranks agree on these
		err = errors.Join(err, r.finalHash())
	}
	r.log.ended(err)
	return err
}

// train is Train without what opens and closes.
func (r *Run) train(ctx context.Context) error {
	// Cases without a step.
	if r.Config.SkipTrain {
		return r.finalEvaluations(ctx)
	}
	if r.Engine.Iteration >= r.iters {
		r.log.note("there is nothing to train: iteration %d of the checkpoint is already the last of %d", r.Engine.Iteration, r.iters)
	}
	if stop, err := r.interrupted(ctx); err != nil {
		return err
	} else if stop {
		return r.stoppedEarly(ctx)
	}
	// What a checkpoint asks for before the first step: saved again, evaluated, evaluations made up for.
	if err := r.saveLoaded(ctx); err != nil {
		return err
	}
	r.log.advance(r.Engine.Iteration)
	if r.Config.EvalAtStart && r.Engine.Iteration == 0 {
		if err := r.evaluateNow(ctx); err != nil {
			return err
		}
	}
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	if r.exhausted() {
		r.log.note("there is nothing to train: %d evaluations had no loss below that of iteration %d (--early-stopping-patience)", r.best.Worse, r.best.Iteration)
	}
	// Every step's collectives carry each rank's vote: whether it was asked to stop.
	r.Engine.Vote = func() float64 { return float64(r.seen(ctx)) }
	for r.Engine.Iteration < r.iters && !r.exhausted() {
		if err := r.iterate(ctx); errors.Is(err, errStopped) {
			return r.stoppedBetween(ctx)
		} else if err != nil {
			return err
		}
		if stop, err := r.afterStep(ctx); stop || err != nil {
			return err
		}
		if err := r.memorySaves(); err != nil {
			return err
		}
	}
	if err := r.saver.finish(ctx, r); err != nil {
		return err
	}
	return r.finalEvaluations(ctx)
}

// stoppedEarly is the end of a run that was asked to stop during its set-up.
func (r *Run) stoppedEarly(ctx context.Context) error {
	return exitcode.Errorf(exitcode.Again, "stopped by %s before iteration %d; nothing has changed, so run the same command again", r.cause(ctx), r.Engine.Iteration+1)
}

// stoppedBetween is the end of a run that was asked to stop before a step: the last one is saved.
func (r *Run) stoppedBetween(ctx context.Context) error {
	if r.Engine.Iteration == 0 {
		return r.stoppedEarly(ctx)
	}
	if err := r.saver.finish(ctx, r); err != nil {
		return err
	}
	return exitcode.Errorf(exitcode.Again, "stopped after iteration %d by %s%s", r.Engine.Iteration, r.cause(ctx), r.kept())
}

// iterate trains one iteration and logs it.
func (r *Run) iterate(ctx context.Context) error {
	start := time.Now()
	r.log.begin(r.Engine.Iteration + 1)
	r.pulse.begin(r.Engine.Iteration + 1)
	defer r.pulse.end()
	r.rank.Enter(health.Data, r.Engine.Iteration+1)
	// The batch of this step, from the consumed samples on.
	size, err := r.batches.At(int(r.at.ConsumedTrain))
	if err != nil {
		return err
	}
	r.log.timers.Start("batch-generator", telemetry.LevelMicro)
	batch, err := r.feeds.train.Batch(r.at.ConsumedTrain, size.Micros)
	r.log.timers.Stop("batch-generator")
	if err != nil {
		return err
	}
	// The consumed samples advance before the step, so that what it logs includes them.
	r.pulse.expect(size.Micros, len(r.Engine.Stages))
	began := r.at
	before := began.ConsumedTrain
	r.at.ConsumedTrain += int64(size.Running)
	r.at.SkippedTrain += int64(size.Global - size.Running)
	step := stepLog{started: start, data: time.Since(start), batch: size}
	// --iterations-to-skip: the samples are consumed and nothing is learned. As in Megatron-LM
	// only those that would have run count as skipped.
	if r.skips(r.Engine.Iteration + 1) {
		r.at.SkippedTrain = began.SkippedTrain + int64(size.Running)
		r.Engine.Iteration++
		return nil
	}
	if err := r.beginBatch(ctx, r.feeds.train, batch); err != nil {
		r.at = began
		return err
	}
	// The step; fingerprints end with it, also where it is not finite.
	step.result, err = r.Engine.StepSeen(batch, r.prints.watch(r, batch, r.exchanges()))
	if nonFinite := new(engine.NonFinite); err == nil || errors.As(err, &nonFinite) {
		err = errors.Join(r.prints.end(r), err)
	}
	if err != nil {
		return r.explain(ctx, err, batch, before)
	}
	r.voted = &step.result.Votes
	r.trained += time.Since(start)
	for _, line := range r.Engine.GraphNews() {
		r.log.note("%s", line)
	}
	if err := r.log.step(r, step); err != nil {
		return err
	}
	return r.tellWhySkipped(&step.result, batch, before)
}

// skips reports whether --iterations-to-skip names the iteration.
func (r *Run) skips(iteration int64) bool {
	for _, n := range r.Config.IterationsToSkip {
		if int64(n) == iteration {
			return true
		}
	}
	return false
}

// afterStep evaluates, saves and checks for a reason to stop.
func (r *Run) afterStep(ctx context.Context) (stop bool, err error) {
	it, c := r.Engine.Iteration, &r.Config
	// Evaluate first: an evaluation may be the reason to stop, and decides which checkpoint is the best.
	if due(it, c.EvalInterval) || r.unjudged() {
		if err := r.evaluateNow(ctx); err != nil {
			return true, err
		}
		r.voted = nil
	}
	// All ranks agree on the reason.
	reason, err := r.reasonToStop(ctx)
	if err != nil {
		return true, err
	}
	if r.best != nil && reason != nil && reason.final && r.best.Last != it { // the last weights are a candidate too
		if err := r.evaluateNow(ctx); err != nil {
			return true, err
		}
	}
	// Save at intervals, before stopping, and what is best so far.
	if due(it, c.Checkpoint.SaveInterval) || reason != nil || r.keptBest() == it {
		if err := r.saver.save(ctx, r); err != nil {
			return true, err
		}
	}
	if reason == nil {
		return false, nil
	}
	// A save in the background ends before the run does.
	if err := r.saver.finish(ctx, r); err != nil {
		return true, err
	}
	if reason.code == exitcode.Done {
		r.log.note("%s", reason.text)
	}
	if reason.final {
		return true, r.finalEvaluations(ctx)
	}
	return true, exitcode.With(reason.code, reason.err())
}
