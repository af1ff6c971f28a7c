package engine

import (
	"time"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/schedule"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
)

// microBatches carries a schedule's actions out on a rank's stages. The value
// that flows between stages is the hidden tensor [s·b, h], under sequence
// parallelism the rank's rows of it.
type microBatches struct {
	engine   *Engine
	micros   []*Micro
	train    bool
	alive    map[cell]*alive
	result   *Result
	observer Observer
}

// cell is a micro-batch in a chunk of the model.
type cell struct{ micro, chunk int }

// alive is a micro-batch on a stage from its forward to its backward, or, without
// one, until its output is sent.
type alive struct {
	scope *device.Scope
	in    device.Tensor // from another stage
	pass  *model.Pass
	out   *model.Output
}

// run carries the schedule for micros out on this rank.
func (e *Engine) run(micros []*Micro, train bool, r *Result, observer Observer) error {
	if train && e.graphs.suits(micros) {
		return e.runGraphs(micros, r)
	}
	e.Optimizer.Begin(train)
	acts, err := e.book.Actions(e.config.PipelineSchedule(len(micros), !train), e.rank.Coordinates.PP)
	if err != nil {
		return err
	}
	w := &microBatches{engine: e, micros: micros, train: train, alive: map[cell]*alive{}, result: r, observer: observer}
	l := &link{engine: e, work: w, rows: e.hiddenRows(micros[0])}
	if !train {
		if err := schedule.Run(acts, w, l); err != nil {
			return err
		}
		return e.Optimizer.Rest()
	}
	if !e.MeasuresStages() {
		return schedule.Run(acts, w, l)
	}
	r.Pipeline, err = schedule.RunMeasured(acts, w, l, func() time.Time {
		_ = e.device.Sync() // its error is the device's, and reported at the end of the step
		return time.Now()
	})
	return err
}

// MeasuresStages reports whether steps measure each stage's actions: waiting for the device around every
// action costs time, so it is done only where --timing-log-level asks for it.
func (e *Engine) MeasuresStages() bool {
	return e.rank.Sizes.PP > 1 && e.Timers.Level() >= telemetry.LevelStep
}

func (w *microBatches) Forward(i, chunk int, in device.Tensor) (device.Tensor, error) {
	e, m := w.engine, w.micros[i]
	if w.train {
		e.rank.Enter(health.Forward, e.Iteration+1)
	}
	// What is timed and seen of this pass.
	timed := e.timed(&w.result.Forward)
	w.observer.begin(i, chunk)
	e.Timers.Start("forward-compute", telemetry.LevelMicro)
	defer e.Timers.Stop("forward-compute")
	// The pass lives until its backward: input, micro-batch, saved activations.
	a := &alive{scope: e.device.Arena.Scope(device.Activations), in: in}
	w.alive[cell{i, chunk}] = a
	var mask device.Tensor
	a.pass, mask = e.load(a.scope, m, e.parts[chunk], len(w.micros), w.train)
	// The pass's observers, its exchanges, how gradients are summed.
	a.pass.Micro = i + 1
	a.pass.Exchanged = e.exchanged
	a.pass.See, a.pass.Routed, a.pass.SeeAhead = e.spoiled(w.train, i, w.observer), w.observer.Routed, w.observer.ahead(a.pass)
	e.hook(a.pass, w.train && i == len(w.micros)-1)
	a.pass.Leaves = e.leaves(m)
	e.setObjective(a.pass, m, e.parts[chunk])
	w.observer.follow(a.pass)
	if e.parts[chunk].Head && w.observer.Done == nil { // else all losses are shown
		a.pass.Learned = e.learned(m, a.pass.Positions)
	}
	// Layers: hidden states [rows, hidden] in and out.
	var err error
	if a.out, err = e.Stages[chunk].Forward(a.pass, in); err != nil {
		return in, err
	}
	// The last stage: losses, and without training the end of the pass.
	if e.parts[chunk].Head {
		if e.Objective == nil {
			e.addLosses(a.pass, a.out, mask)
		}
		e.countRight(a.pass, a.out, mask)
		if w.observer.Done != nil {
			w.observer.Done(a.pass, a.out)
		}
		if !w.train {
			w.drop(cell{i, chunk})
			return device.Tensor{}, nil
		}
	}
	timed()
	return a.out.Hidden, nil
}

// timed adds the device's time from here until the result is called to a step's result.
func (e *Engine) timed(to *time.Duration) (end func()) {
	var began time.Time
	e.device.At(func(at time.Time) { began = at })
	return func() { e.device.At(func(at time.Time) { *to += at.Sub(began) }) }
}

// exchanged times what attention waits for of ranks that share sequences, as part of forward
// and backward.
func (e *Engine) exchanged(wait func() error) error {
	e.Timers.Start("context-exchange", telemetry.LevelMicro)
	defer e.Timers.Stop("context-exchange")
	return wait()
}

// hook lets the optimizer bring parameters and take gradients while the pass goes
// through a stage; last: it is the stage's last backward of the step.
func (e *Engine) hook(p *model.Pass, last bool) {
	p.Hooks = e.Optimizer.Hooks(last)
	p.Bare = e.Bare
}

// drop ends a micro-batch that no backward follows.
func (w *microBatches) drop(at cell) {
	a := w.alive[at]
	delete(w.alive, at)
	a.out.Release()
	w.end(a)
}

func (w *microBatches) end(a *alive) {
	a.scope.Release()
	if a.in.Given() {
		w.engine.device.Arena.Free(a.in)
	}
}

func (w *microBatches) Backward(i, chunk int, dout device.Tensor) (din device.Tensor, err error) {
	e, at := w.engine, cell{i, chunk}
	e.rank.Enter(health.Backward, e.Iteration+1)
	timed := e.timed(&w.result.Backward)
	a := w.alive[at]
	delete(w.alive, at)
	defer w.end(a)
	w.observer.begin(i, chunk)
	e.Timers.Start("backward-compute", telemetry.LevelMicro)
	defer e.Timers.Stop("backward-compute")
	if a.in.Given() {
		din = e.device.Arena.Alloc(device.Communication, a.in.DType, a.in.Dims()...)
	}
	err = e.Stages[chunk].Backward(a.pass, a.out, dout, din)
	if dout.Given() {
		e.device.Arena.Free(dout)
	}
	timed()
	return din, err
}

// sent ends what only waited for its value to be sent.
func (w *microBatches) sent(t schedule.Transfer, value device.Tensor) {
	at := cell{t.Micro, t.Chunk}
	switch {
	case t.Grad:
		w.engine.device.Arena.Free(value)
	case !w.train:
		w.drop(at)
	case w.alive[at] != nil:
		w.alive[at].out.Sent()
	}
}
