package engine

import (
	"math"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/optimizer"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
)

// Step trains on one global batch: forward and backward of every micro-batch,
// clip, update. With a loss or gradient that is not finite nothing changes; with
// fp16 that is a skipped step, else an error unless the check is off.
func (e *Engine) Step(micros []*Micro) (r Result, err error) { return e.StepSeen(micros, e.Observer) }

// StepSeen is a step that shows what it computes.
func (e *Engine) StepSeen(micros []*Micro, observer Observer) (r Result, err error) {
	for {
		if r, err = e.attempt(micros, observer); err != nil || !r.Update.Again {
			return r, err
		}
		observer.Again = true // a sum did not fit its grid: once more, on a wider one
	}
}

// attempt is a step, unless sums on grids did not fit: then nothing has changed but the grids.
func (e *Engine) attempt(micros []*Micro, observer Observer) (r Result, err error) {
	if err = e.begin(&r, len(micros)); err != nil { // the gradients are 0; the device knows what is new in this step
		return r, err
	}
	if err = e.forwardBackward(micros, &r, observer); err != nil { // stages of the model by the pipeline's schedule: run, in pipeline.go
		return r, err
	}
	if err = e.sumLosses(&r, micros); err != nil { // over all ranks
		return r, err
	}
	if err = e.update(&r); err != nil { // gradients are summed in buckets, clipped, and move the weights: the optimizer's Step
		return r, err
	}
	if r.Update.Again {
		return r, nil
	}
	if err = e.balanceExperts(&r); err != nil {
		return r, err
	}
	if err = e.moveScales(); err != nil { // of 8-bit operands, by what this step measured
		return r, err
	}
	return r, e.advance(r, samples(micros)*e.rank.Sizes.DP) // iteration, learning rate, loss scale
}

// begin resets the sums and gives the device what changes this step.
func (e *Engine) begin(r *Result, micros int) error {
	r.LR, r.Scale, r.Decay = e.Scheduler.LR(), e.Scaler.Scale(), e.Scheduler.WeightDecay()
	if err := e.Optimizer.ZeroGrad(); err != nil {
		return err
	}
	e.tell(r.Scale)
	e.measureScales()
	e.beginMixtures(r.Scale, micros)
	return nil
}

func (e *Engine) forwardBackward(micros []*Micro, r *Result, observer Observer) error {
	e.Timers.Start("forward-backward", telemetry.LevelStep)
	if err := e.run(micros, true, r, observer); err != nil {
		return err
	}
	e.Timers.Stop("forward-backward")
	return nil
}

// sumLosses leaves the sums on the device, to be read with the update's result; only a
// gradient that is divided by all tokens needs their number before.
func (e *Engine) sumLosses(r *Result, micros []*Micro) error {
	e.rank.Enter(health.Reduce, e.Iteration+1)
	e.vote()
	if err := e.sumTotals(); err != nil {
		return err
	}
	if e.config.CalculatePerTokenLoss {
		r.Tokens = device.ReadSlice[float64](e.device, e.sums)[1]
	}
	if err := e.sumAhead(); err != nil {
		return err
	}
	return e.sumMixtures(r, e.averaged(micros))
}

// vote adds what this rank has to say to the sums.
func (e *Engine) vote() {
	if e.Vote == nil {
		return
	}
	if v := e.Vote(); v != 0 {
		device.WriteSlice(e.device, e.Optimizer.Extra.Slice(0, 2, 1), []float64{v})
	}
}

func (e *Engine) update(r *Result) (err error) {
	e.Timers.Start("optimizer", telemetry.LevelStep)
	c, timed := &e.config, e.timed(&r.UpdateFor)
	r.Factor = e.gradFactor(r)
	r.Update, err = e.Optimizer.Step(optimizer.StepArgs{LR: r.LR, WeightDecay: r.Decay, Factor: r.Factor,
		Reduced: e.beforeUpdate, Enqueued: func() {
			e.Timers.Stop("optimizer")
			timed()
		}, DecoupledLR: e.Scheduler.LRBetween(c.Optimizer.DecoupledLR, c.Optimizer.DecoupledMinLR)})
	if r.Update.Again {
		e.Timers.Stop("optimizer")
	}
	if err != nil || r.Update.Again {
		return err
	}
	e.device.Settle() // the result was waited for: all times before it are known
	r.Tokens, r.Votes = r.Update.Extra[1], r.Update.Extra[2]
	r.Loss, r.Ahead = r.Update.Extra[0]/math.Max(1, r.Tokens), e.aheadLosses()
	return nil
}

// beforeUpdate is called when the gradients are complete and nothing of the
// model has changed yet.
func (e *Engine) beforeUpdate() {
	if e.Settled != nil {
		e.Settled()
	}
	e.rank.Enter(health.Optimizer, e.Iteration+1)
}

func (e *Engine) advance(r Result, samples int) error {
	if r.Update.Skipped && !e.Scaler.Dynamic() && e.config.CheckForNaN {
		return exitcode.With(exitcode.Internal, &NonFinite{e.Iteration + 1, r.Loss, r.Update.NonFinite})
	}
	e.Iteration++
	e.Scaler.Update(r.Update.Skipped)
	if !r.Update.Skipped {
		e.Scheduler.Step(samples)
	}
	return nil
}
