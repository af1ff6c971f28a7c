package training

import (
	"context"
	"errors"
	"fmt"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/megatron/report"
	"monotron/mpu/comm"
	"monotron/mpu/comm/watch"
	"monotron/mpu/ranks"
)

// Run is one rank's training run, from its start to the last checkpoint. All
// ranks run the same lines; what one of them decides, they have agreed on.
type Run struct {
	*Job
	Engine *engine.Engine

	rank    *ranks.Rank
	device  *device.Device
	feeds   feeds
	batches *BatchSizes
	at      Progress
	order   sampleOrder
	log     *logger
	saver   *saver
	votes   device.Tensor // i64 [1]
	started time.Time
	pulse   *pulse
}

// Progress counts what a run has consumed; a checkpoint keeps it.
type Progress struct {
	ConsumedTrain int64 // samples
	ConsumedValid int64
	SkippedTrain  int64 // samples dropped by --decrease-batch-size-if-needed
}

// Start sets a rank's run up: model, checkpoint or fresh weights, data.
func (j *Job) Start(rank *ranks.Rank) (*Run, error) {
	r := &Run{Job: j, rank: rank, device: rank.Device, started: time.Now()}
	rank.Enter(watch.Startup, 0)
	var err error
	if r.batches, err = NewBatchSizes(&r.Config, rank.Sizes.DP); err != nil {
		return nil, err
	}
	r.votes = r.device.Arena.Zeroed(device.Workspace, device.I64, 1)
	if r.Engine, err = engine.New(rank, r.Config.Config, j.schedule); err != nil {
		return nil, err
	}
	if r.log, err = newLogger(r); err != nil {
		return nil, err
	}
	r.pulse = newPulse(r)
	if err = j.hold(rank); err != nil {
		return nil, err
	}
	r.Engine.Timers = r.log.timers
	r.order = ownOrder(&r.Config)
	r.log.info("device", "device %s: %s, %d threads", r.device.Name, r.device.Describe(), device.SharedPool().Threads())
	if err = r.Engine.ChooseAttention(r.Config.microShapes(), r.log.note); err != nil {
		return nil, err
	}
	if r.Config.Graphs {
		if why := r.Engine.Capture(); why != "" {
			r.log.note("no CUDA graphs: %s", why)
		}
	}
	if rank.Carrier != "" {
		r.log.info("comm", "between ranks: %s", rank.Carrier)
	}
	if err = r.log.parameters(r.Engine.Params); err != nil {
		return nil, err
	}
	if err = r.restore(); err != nil {
		return nil, err
	}
	r.tellOverwriting()
	sets, err := j.data(func(text string) { r.log.info("data", "%s", text) })
	if err != nil {
		return nil, err
	}
	if r.feeds, err = newFeeds(&r.Config, sets, rank.Place.DP, r.order, r.log.note); err != nil {
		return nil, err
	}
	if err = r.checkPrompts(); err != nil {
		return nil, err
	}
	return r, r.device.Sync()
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
	defer r.saver.settled() // the device may be closed then
	watching, stop := context.WithCancel(ctx)
	defer stop()
	r.watchGPUs(watching)
	if r.Config.SkipTrain {
		return r.finalEvaluations(ctx)
	}
	if r.Engine.Iteration >= r.iters {
		r.log.note("nothing to train: the checkpoint's iteration %d is the last of %d already", r.Engine.Iteration, r.iters)
	}
	if stop, err := r.interrupted(ctx); err != nil {
		return err
	} else if stop {
		return r.stoppedEarly(ctx)
	}
	r.log.advance(r.Engine.Iteration)
	if r.Config.EvalAtStart && r.Engine.Iteration == 0 {
		if err := r.evaluateNow(ctx); err != nil {
			return err
		}
	}
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

// stoppedEarly is the end of a run that was asked to stop during its set-up.
func (r *Run) stoppedEarly(ctx context.Context) error {
	return fault.Errorf(fault.Again, "stopped by %s before iteration %d: nothing has changed, run the same command again", cause(ctx), r.Engine.Iteration+1)
}

// iterate trains one iteration and logs it.
func (r *Run) iterate(ctx context.Context) error {
	start := time.Now()
	r.log.begin(r.Engine.Iteration + 1)
	r.pulse.begin(r.Engine.Iteration + 1)
	defer r.pulse.end()
	r.rank.Enter(watch.Data, r.Engine.Iteration+1)
	size, err := r.batches.At(int(r.at.ConsumedTrain))
	if err != nil {
		return err
	}
	r.log.timers.Start("batch-generator", report.LevelMicro)
	batch, err := r.feeds.train.Batch(r.at.ConsumedTrain, size.Micros)
	r.log.timers.Stop("batch-generator")
	if err != nil {
		return err
	}
	r.pulse.expect(size.Micros, len(r.Engine.Stages))
	before := r.at.ConsumedTrain
	r.at.ConsumedTrain += int64(size.Running)
	r.at.SkippedTrain += int64(size.Global - size.Running)
	step := stepLog{started: start, data: time.Since(start), batch: size}
	if r.skips(r.Engine.Iteration + 1) {
		r.Engine.Iteration++
		return nil
	}
	if step.result, err = r.Engine.Step(batch); err != nil {
		return r.explain(ctx, err, batch, before)
	}
	for _, line := range r.Engine.GraphNews() {
		r.log.note("%s", line)
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
	if due(it, c.EvalInterval) {
		if err := r.evaluateNow(ctx); err != nil {
			return true, err
		}
	}
	reason, err := r.reasonToStop(ctx)
	if err != nil {
		return true, err
	}
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

// reasonToStop is the same on every rank: a signal, or the end of a time, that one
// of them has seen.
func (r *Run) reasonToStop(ctx context.Context) (*reason, error) {
	it, c := r.Engine.Iteration, &r.Config
	kept := "; the checkpoint of this iteration is saved, run the same command again to go on"
	if c.Checkpoint.Save == "" {
		kept = "; nothing is saved because --save is not given"
	}
	seen := nothing
	switch {
	case ctx.Err() != nil:
		seen = signalled
	case c.ExitDurationMins > 0 && time.Since(r.started) > time.Duration(c.ExitDurationMins)*time.Minute:
		seen = timeIsUp
	}
	seen, err := r.agree(seen)
	switch {
	case err != nil:
		return nil, err
	case seen == signalled:
		return &reason{fmt.Sprintf("stopped after iteration %d by %s%s", it, cause(ctx), kept), fault.Again}, nil
	case seen == timeIsUp:
		return &reason{fmt.Sprintf("stopped after iteration %d: --exit-duration-in-mins %d is over%s", it, c.ExitDurationMins, kept), fault.Again}, nil
	case due(it, c.ExitInterval):
		return &reason{fmt.Sprintf("exiting at iteration %d as --exit-interval asks", it), fault.Done}, nil
	}
	return nil, nil
}

// What a rank may have seen that all must act on; the highest counts.
const (
	nothing int64 = iota
	timeIsUp
	signalled
)

// agree is the highest of what the ranks have seen.
func (r *Run) agree(seen int64) (int64, error) {
	if r.rank.World().Size() == 1 {
		return seen, nil
	}
	device.WriteSlice(r.device, r.votes, []int64{seen})
	if err := r.rank.World().AllReduce(r.votes, comm.Max).Wait(); err != nil {
		return 0, err
	}
	return device.ReadSlice[int64](r.device, r.votes)[0], nil
}

// cause names what cancelled ctx, or another rank's.
func cause(ctx context.Context) string {
	if ctx.Err() == nil {
		return "a signal to another rank"
	}
	return context.Cause(ctx).Error()
}
