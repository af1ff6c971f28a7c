package training

import (
	"fmt"
	"math"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/report"
	"monotron/megatron/schedule"
	"monotron/mpu/comm/watch"
)

// StepResult is what one training step tells.
type StepResult struct {
	Loss      float64 // Σ loss / Σ tokens of the global batch
	Tokens    float64 // counted
	LR        float64 // used by this step
	Decay     float64 // weight decay of this step
	Scale     float64 // loss scale of this step
	Factor    float64 // Param.Grad holds the gradients times this
	Update    optimizer.Result
	Forward   time.Duration
	Backward  time.Duration
	UpdateFor time.Duration
	Pipeline  schedule.Usage // what this rank's stage did, where it was measured
}

// Step trains on one global batch: forward and backward of every micro-batch,
// clip, update. With a loss or gradient that is not finite nothing changes; with
// fp16 that is a skipped step, else an error unless the check is off.
func (e *Engine) Step(micros []*Micro) (r StepResult, err error) {
	r.LR, r.Scale = e.Scheduler.LR(), e.Scaler.Scale()
	e.Optimizer.ZeroGrad()
	e.prepare(r.Scale)

	e.Timers.Start("forward-backward", report.LevelStep)
	if err = e.run(micros, true, &r, peek{}); err != nil {
		return r, err
	}
	e.Timers.Stop("forward-backward")
	e.rank.Enter(watch.Reduce, e.Iteration+1)
	sum, tokens, err := e.Totals()
	if err != nil {
		return r, err
	}
	r.Tokens, r.Loss = tokens, sum/math.Max(1, tokens)

	r.Factor = e.gradFactor(r)
	start := time.Now()
	e.Timers.Start("optimizer", report.LevelStep)
	r.Decay = e.Scheduler.WeightDecay()
	r.Update, err = e.Optimizer.Step(optimizer.StepArgs{LR: r.LR, WeightDecay: r.Decay, Factor: r.Factor, PerToken: e.config.CalculatePerTokenLoss,
		Reduced:     e.beforeUpdate,
		DecoupledLR: e.Scheduler.LRBetween(e.config.Optimizer.DecoupledLR, e.config.Optimizer.DecoupledMinLR)})
	if err != nil {
		return r, err
	}
	r.Factor = r.Update.Factor
	e.Timers.Stop("optimizer")
	r.UpdateFor = time.Since(start)
	if err = e.device.Sync(); err != nil {
		return r, err
	}
	return r, e.advance(r, samples(micros)*e.rank.Sizes.DP)
}

// beforeUpdate is called when the gradients are complete and nothing of the
// model has changed yet.
func (e *Engine) beforeUpdate() {
	if e.Settled != nil {
		e.Settled()
	}
	e.rank.Enter(watch.Optimizer, e.Iteration+1)
}

func samples(micros []*Micro) (n int) {
	for _, m := range micros {
		n += len(m.Tokens)
	}
	return n
}

// prepare resets the sums and tells the device what changes this step.
func (e *Engine) prepare(scale float64) {
	e.device.Fill(e.sums, 0)
	device.WriteSlice(e.device, e.scale, []float32{float32(scale)})
	device.WriteSlice(e.device, e.iteration, []int64{e.Iteration})
}

// gradFactor is what the main gradients were multiplied by.
func (e *Engine) gradFactor(r StepResult) float64 {
	if e.config.CalculatePerTokenLoss {
		return r.Scale * math.Max(1, r.Tokens)
	}
	return r.Scale
}

func (e *Engine) advance(r StepResult, samples int) error {
	if r.Update.Skipped && !e.Scaler.Dynamic() && e.config.CheckForNaN {
		return fault.With(fault.Internal, &nonFinite{e.Iteration + 1, r.Loss, r.Update.NonFinite})
	}
	e.Iteration++
	e.Scaler.Update(r.Update.Skipped)
	if !r.Update.Skipped {
		e.Scheduler.Step(samples)
	}
	return nil
}

// Loss computes the mean loss over micro-batches without training: Σ loss and
// Σ counted tokens of all ranks.
func (e *Engine) Loss(micros []*Micro) (sum, tokens float64, err error) {
	if err = e.Peek(micros, nil, nil); err != nil {
		return 0, 0, fmt.Errorf("evaluating: %w", err)
	}
	return e.Totals()
}

// Micro is the micro-batch that goes forward, for what looks at a pass.
func (e *Engine) Micro() int { return e.micro }

// Peek runs micro-batches forward, without dropout. Where given, layer is shown the
// residual stream of this rank's layers (model.Pass.See) and done, on the last
// stage, each output before it is released.
func (e *Engine) Peek(micros []*Micro, layer func(depth int, x device.Tensor), done func(*model.Pass, *model.Output)) error {
	e.device.Fill(e.sums, 0)
	return e.run(micros, false, &StepResult{}, peek{layer, done})
}
