package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/optimizer"
	"monotron/megatron/report"
	"monotron/tokenizer"
)

// Run is one process's training run, from command line to last checkpoint.
type Run struct {
	Config    Config
	Tokenizer tokenizer.Tokenizer
	Engine    *Engine

	device  *device.Device
	data    feeds
	batches *BatchSizes
	iters   int64 // to train in all
	at      Progress
	log     *logger
	saver   *saver
	started time.Time
}

// Progress counts what a run has consumed; a checkpoint keeps it.
type Progress struct {
	ConsumedTrain int64 // samples
	ConsumedValid int64
	SkippedTrain  int64 // samples dropped by --decrease-batch-size-if-needed
}

// Streams are where a run writes: Megatron's lines to Out, notes for people to Notes.
type Streams struct{ Out, Notes io.Writer }

// Start sets a run up on d: tokenizer, model, checkpoint or fresh weights, data.
func Start(c Config, d *device.Device, w Streams) (*Run, error) {
	r := &Run{Config: c, device: d, started: time.Now()}
	var err error
	if r.Tokenizer, err = tokenizer.FromConfig(c.Tokenizer); err != nil {
		return nil, err
	}
	if err = r.Config.SetVocab(r.Tokenizer.VocabSize()); err != nil {
		return nil, err
	}
	if r.batches, err = NewBatchSizes(&r.Config, r.Config.Layout.DP); err != nil {
		return nil, err
	}
	iters, err := r.Config.Iterations()
	if err != nil {
		return nil, err
	}
	r.iters = int64(iters)
	schedule, err := r.Config.schedule()
	if err != nil {
		return nil, err
	}
	if err = probe(c.Checkpoint.Save); err != nil {
		return nil, err
	}
	if r.Engine, err = NewEngine(d, r.Config, schedule); err != nil {
		return nil, err
	}
	if r.log, err = newLogger(r, w); err != nil {
		return nil, err
	}
	r.Engine.Timers = r.log.timers
	r.Config.Data.Notice = func(text string) { r.log.note("%s", text) }
	if err = r.log.parameters(r.Engine.Params); err != nil {
		return nil, err
	}
	if err = r.restore(); err != nil {
		return nil, err
	}
	if r.data, err = openData(&r.Config, r.Tokenizer, int(r.iters)); err != nil {
		return nil, err
	}
	if err = r.checkPrompts(); err != nil {
		return nil, err
	}
	return r, d.Sync()
}

// schedule is the course of the learning rate; an evaluation alone needs none.
func (c *Config) schedule() (optimizer.Schedule, error) {
	if c.SkipTrain && c.TrainIters == 0 && c.TrainSamples == 0 {
		return optimizer.Schedule{Style: optimizer.DecayConstant, WDStyle: optimizer.DecayConstant}, nil
	}
	return c.Optimizer.Schedule(c.TrainIters, c.TrainSamples, c.GlobalBatchSize)
}

// Train runs until the last iteration or a reason to stop. The error carries
// the exit code; nil is done.
func (r *Run) Train(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.log.close()) }()
	if r.Config.SkipTrain {
		return r.finalEvaluations(ctx)
	}
	if r.Engine.Iteration >= r.iters {
		r.log.note("nothing to train: the checkpoint's iteration %d is the last of %d already", r.Engine.Iteration, r.iters)
	}
	r.log.bar.Add(r.Engine.Iteration)
	for r.Engine.Iteration < r.iters {
		if err := r.iterate(ctx); err != nil {
			return err
		}
		if stop, err := r.afterStep(ctx); stop || err != nil {
			return err
		}
	}
	if err := r.saver.finish(ctx, r); err != nil {
		return err
	}
	return r.finalEvaluations(ctx)
}

// iterate trains one iteration and logs it.
func (r *Run) iterate(ctx context.Context) error {
	start := time.Now()
	r.log.begin(r.Engine.Iteration + 1)
	size, err := r.batches.At(int(r.at.ConsumedTrain))
	if err != nil {
		return err
	}
	r.log.timers.Start("batch-generator", report.LevelMicro)
	batch, err := r.data.train.Batch(r.at.ConsumedTrain, size.Micros)
	r.log.timers.Stop("batch-generator")
	if err != nil {
		return err
	}
	r.at.ConsumedTrain += int64(size.Running)
	r.at.SkippedTrain += int64(size.Global - size.Running)
	step := stepLog{started: start, data: time.Since(start), batch: size}
	if r.skips(r.Engine.Iteration + 1) {
		r.Engine.Iteration++
		return nil
	}
	if step.result, err = r.Engine.Step(batch); err != nil {
		return err
	}
	return r.log.step(r, step)
}

// skips tells whether --iterations-to-skip names the iteration.
func (r *Run) skips(iteration int64) bool {
	for _, n := range r.Config.IterationsToSkip {
		if int64(n) == iteration {
			return true
		}
	}
	return false
}

// afterStep evaluates, saves and looks for a reason to stop.
func (r *Run) afterStep(ctx context.Context) (stop bool, err error) {
	it, c := r.Engine.Iteration, &r.Config
	if due(it, c.EvalInterval) && r.data.valid != nil && c.EvalIters > 0 {
		if err := r.evaluateAt(ctx, fmt.Sprintf("iteration %d", it), r.data.valid, false); err != nil {
			return true, err
		}
	}
	reason := r.reasonToStop(ctx)
	if due(it, c.Checkpoint.SaveInterval) || reason != nil {
		if err := r.saver.save(ctx, r); err != nil {
			return true, err
		}
	}
	if reason == nil {
		return false, nil
	}
	if err := r.saver.finish(ctx, r); err != nil {
		return true, err
	}
	if reason.code == fault.Done {
		r.log.note("%s", reason.text)
	}
	return true, fault.With(reason.code, reason.err())
}

func due(iteration int64, every int) bool { return every > 0 && iteration%int64(every) == 0 }

// reason is why a run stops before its last iteration.
type reason struct {
	text string
	code fault.Code
}

// err is nil where stopping was asked for as a normal end.
func (s *reason) err() error {
	if s.code == fault.Done {
		return nil
	}
	return fmt.Errorf("%s", s.text)
}

func (r *Run) reasonToStop(ctx context.Context) *reason {
	it, c := r.Engine.Iteration, &r.Config
	kept := "; the checkpoint of this iteration is saved, run the same command again to go on"
	if c.Checkpoint.Save == "" {
		kept = "; nothing is saved because --save is not given"
	}
	switch {
	case ctx.Err() != nil:
		return &reason{fmt.Sprintf("stopped after iteration %d by %v%s", it, context.Cause(ctx), kept), fault.Again}
	case c.ExitDurationMins > 0 && time.Since(r.started) > time.Duration(c.ExitDurationMins)*time.Minute:
		return &reason{fmt.Sprintf("stopped after iteration %d: --exit-duration-in-mins %d is over%s", it, c.ExitDurationMins, kept), fault.Again}
	case due(it, c.ExitInterval):
		return &reason{fmt.Sprintf("exiting at iteration %d as --exit-interval asks", it), fault.Done}
	}
	return nil
}
