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
	"monotron/mpu"
)

// Engine is a rank's model with its optimizer: what one training step needs
// besides the data.
type Engine struct {
	config Config
	device *device.Device
	dtype  device.DType

	Stage     *model.Stage
	Params    []*mpu.Param
	Optimizer *optimizer.Optimizer
	Scheduler *optimizer.ParamScheduler
	Scaler    *optimizer.Scaler
	Iteration int64 // done
	Timers    *report.Timers

	scale     device.Tensor // f32 [1]: loss scale
	iteration device.Tensor // i64 [1]: names this step's dropout masks
	sums      device.Tensor // f64 [2]: Σ loss·mask, Σ mask
	mask      device.Tensor // of the micro-batch under way
}

// NewEngine builds model and optimizer on d; parameters are not yet set.
func NewEngine(d *device.Device, c Config, s optimizer.Schedule) (*Engine, error) {
	e := &Engine{config: c, device: d, Timers: report.NewTimers(report.LevelAlways), dtype: valueType(c.Precision), Scheduler: optimizer.NewParamScheduler(s), Scaler: optimizer.NewScaler(&c.Optimizer, c.Precision == FP16)}
	layers := make([]int, c.Model.NumLayers)
	for i := range layers {
		layers[i] = i
	}
	var err error
	e.Stage, err = model.NewStage(d, model.StageConfig{Model: &e.config.Model, Layers: layers, Embedding: true, Head: true,
		Recompute: c.Recompute, DType: e.dtype}, model.Alone(d))
	if err != nil {
		return nil, fault.With(fault.Usage, err)
	}
	e.Params = e.Stage.Params()
	grads := e.Stage.Materialize(c.SeqLength, true)
	e.Optimizer = optimizer.New(d, c.Optimizer, e.Params, grads)
	e.scale = d.Arena.Zeroed(device.Workspace, device.F32, 1)
	e.iteration = d.Arena.Zeroed(device.Workspace, device.I64, 1)
	e.sums = d.Arena.Zeroed(device.Workspace, device.F64, 2)
	return e, d.Err()
}

func valueType(precision string) device.DType {
	switch precision {
	case BF16:
		return device.BF16
	case FP16:
		return device.F16
	}
	return device.F32
}

// Initialize draws every parameter's start from the seed.
func (e *Engine) Initialize() error {
	for _, p := range e.Params {
		p.Initialize(e.device, uint64(e.config.Seed))
	}
	return e.device.Sync()
}

// StepResult is what one training step tells.
type StepResult struct {
	Loss      float64 // Σ loss / Σ tokens of the global batch
	Tokens    float64 // counted
	LR        float64 // used by this step
	Scale     float64 // loss scale of this step
	Factor    float64 // Param.Grad holds the gradients times this
	Update    optimizer.Result
	Forward   time.Duration
	Backward  time.Duration
	UpdateFor time.Duration
}

// Step trains on one global batch: forward and backward of every micro-batch,
// clip, update. With a loss or gradient that is not finite nothing changes; with
// fp16 that is a skipped step, else an error unless the check is off.
func (e *Engine) Step(micros []*Micro) (r StepResult, err error) {
	samples := 0
	for _, m := range micros {
		samples += len(m.Tokens)
	}
	r.LR, r.Scale = e.Scheduler.LR(), e.Scaler.Scale()
	e.Optimizer.ZeroGrad()
	e.prepare(r.Scale)

	e.Timers.Start("forward-backward", report.LevelStep)
	work := &microBatches{engine: e, micros: micros, passes: make([]*alive, len(micros)), result: &r}
	if err = schedule.Run(schedule.OneFOneB(0, 1, len(micros)), work); err != nil {
		return r, err
	}
	e.Timers.Stop("forward-backward")
	sums := device.ReadSlice[float64](e.device, e.sums)
	r.Tokens, r.Loss = sums[1], sums[0]/math.Max(1, sums[1])

	r.Factor = e.gradFactor(r)
	start := time.Now()
	e.Timers.Start("optimizer", report.LevelStep)
	r.Update = e.Optimizer.Step(optimizer.StepArgs{LR: r.LR, WeightDecay: e.Scheduler.WeightDecay(), Factor: r.Factor,
		DecoupledLR: e.Scheduler.LRBetween(e.config.Optimizer.DecoupledLR, e.config.Optimizer.DecoupledMinLR)})
	e.Timers.Stop("optimizer")
	r.UpdateFor = time.Since(start)
	if err = e.device.Sync(); err != nil {
		return r, err
	}
	return r, e.advance(r, samples)
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
		return fault.Errorf(fault.Internal, "iteration %d: loss %g, %d gradient elements are not finite (%s); nothing was updated. "+
			"Lower --lr, look at the data of this step, or go on regardless with --no-check-for-nan-in-loss-and-grad",
			e.Iteration+1, r.Loss, r.Update.NonFinite, e.firstNonFinite())
	}
	e.Iteration++
	e.Scaler.Update(r.Update.Skipped)
	if !r.Update.Skipped {
		e.Scheduler.Step(samples)
	}
	return nil
}

// firstNonFinite names the first parameter with a gradient that is not finite.
func (e *Engine) firstNonFinite() string {
	stats := e.device.Arena.Alloc(device.Workspace, device.F64, device.Stats)
	defer e.device.Arena.Free(stats)
	for _, p := range e.Params {
		e.device.Fill(stats, 0)
		e.device.GradStats(stats, p.Grad)
		if device.ReadSlice[float64](e.device, stats)[device.StatNonFinite] > 0 {
			return "first in " + p.Name
		}
	}
	return "the loss only"
}

// microBatches carries a schedule's actions out on the engine.
type microBatches struct {
	engine *Engine
	micros []*Micro
	passes []*alive
	result *StepResult
}

// alive is a micro-batch between its forward and its backward.
type alive struct {
	scope *device.Scope
	pass  *model.Pass
	out   *model.Output
}

func (w *microBatches) Forward(i int) error {
	start := time.Now()
	e, m := w.engine, w.micros[i]
	e.Timers.Start("forward-compute", report.LevelMicro)
	defer e.Timers.Stop("forward-compute")
	a := &alive{scope: e.device.Arena.Scope(device.Activations)}
	a.pass = e.load(a.scope, m, e.tokenWeight(m, len(w.micros)))
	a.pass.Grad, a.pass.LossScale = true, e.scale
	a.pass.Step, a.pass.Samples = e.iteration, put(e.device, a.scope, device.I32, m.Samples)
	var err error
	if a.out, err = e.Stage.Forward(a.pass, device.Tensor{}); err != nil {
		return err
	}
	e.device.WeightedSum(e.sums, a.out.Loss, e.mask)
	w.passes[i] = a
	w.result.Forward += time.Since(start)
	return nil
}

// tokenWeight: by default a step's gradient is the mean over micro-batches of
// each one's mean over its counted tokens; per token, the sum (divided by all
// tokens in the update).
func (e *Engine) tokenWeight(m *Micro, micros int) float64 {
	if e.config.CalculatePerTokenLoss {
		return 1
	}
	return 1 / math.Max(1, m.counted()) / float64(micros)
}

func (w *microBatches) Backward(i int) error {
	start := time.Now()
	a := w.passes[i]
	w.passes[i] = nil
	defer a.scope.Release()
	w.engine.Timers.Start("backward-compute", report.LevelMicro)
	defer w.engine.Timers.Stop("backward-compute")
	err := w.engine.Stage.Backward(a.pass, a.out, device.Tensor{}, device.Tensor{})
	w.result.Backward += time.Since(start)
	return err
}

// Loss computes the mean loss over micro-batches without training: Σ loss and
// Σ counted tokens.
func (e *Engine) Loss(micros []*Micro) (sum, tokens float64, err error) {
	e.device.Fill(e.sums, 0)
	for i, m := range micros {
		if err := e.Peek(m, nil, nil); err != nil {
			return 0, 0, fmt.Errorf("evaluating micro-batch %d: %w", i, err)
		}
	}
	sums := device.ReadSlice[float64](e.device, e.sums)
	return sums[0], sums[1], e.device.Sync()
}

// Peek runs one micro-batch forward, without dropout. Where given, layer is shown
// the residual stream (model.Pass.See) and done the output before it is released.
func (e *Engine) Peek(m *Micro, layer func(depth int, x device.Tensor), done func(*model.Pass, *model.Output)) error {
	s := e.device.Arena.Scope(device.Activations)
	defer s.Release()
	p := e.load(s, m, 1)
	p.See = layer
	out, err := e.Stage.Forward(p, device.Tensor{})
	if err != nil {
		return err
	}
	defer out.Release()
	e.device.WeightedSum(e.sums, out.Loss, e.mask)
	if done != nil {
		done(p, out)
	}
	return nil
}
