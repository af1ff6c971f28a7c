package training

import (
	"math"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/report"
	"monotron/megatron/schedule"
	"monotron/mpu/comm"
	"monotron/mpu/comm/watch"
	"monotron/mpu/topology"
)

// microBatches carries a schedule's actions out on a rank's stages. The value
// that flows between stages is the hidden tensor [s·b, h], under sequence
// parallelism the rank's rows of it.
type microBatches struct {
	engine *Engine
	micros []*Micro
	train  bool
	alive  map[cell]*alive
	result *StepResult
	peek   peek
}

// cell is a micro-batch in a chunk of the model.
type cell struct{ micro, chunk int }

// peek are looks at a forward pass; each may be nil.
type peek struct {
	layer func(depth int, x device.Tensor) // model.Pass.See
	done  func(*model.Pass, *model.Output) // the last stage's output, before it is released
}

// alive is a micro-batch on a stage from its forward to its backward, or, without
// one, until its output is sent.
type alive struct {
	scope *device.Scope
	in    device.Tensor // from another stage
	pass  *model.Pass
	out   *model.Output
}

// run carries the schedule for micros out on this rank.
func (e *Engine) run(micros []*Micro, train bool, r *StepResult, look peek) error {
	if train && e.steady.suits(micros) {
		return e.steady.run(micros, r)
	}
	acts, err := e.book.Actions(e.config.Schedule(len(micros), !train), e.rank.Place.PP)
	if err != nil {
		return err
	}
	w := &microBatches{engine: e, micros: micros, train: train, alive: map[cell]*alive{}, result: r, peek: look}
	l := &link{engine: e, work: w, rows: e.hiddenRows(micros[0])}
	if !train || !e.measuresStages() {
		return schedule.Run(acts, w, l)
	}
	r.Pipeline, err = schedule.RunMeasured(acts, w, l, func() time.Time {
		_ = e.device.Sync() // its error is the device's, and told at the end of the step
		return time.Now()
	})
	return err
}

// measuresStages: waiting for the device around every action costs time, so it is
// done where --timing-log-level asks for it.
func (e *Engine) measuresStages() bool {
	return e.rank.Sizes.PP > 1 && e.config.Log.TimingLevel >= report.LevelStep
}

func (w *microBatches) Forward(i, chunk int, in device.Tensor) (device.Tensor, error) {
	start := time.Now()
	e, m := w.engine, w.micros[i]
	if w.train {
		e.rank.Enter(watch.Forward, e.Iteration+1)
	}
	e.Timers.Start("forward-compute", report.LevelMicro)
	defer e.Timers.Stop("forward-compute")
	a := &alive{scope: e.device.Arena.Scope(device.Activations), in: in}
	w.alive[cell{i, chunk}] = a
	var mask device.Tensor
	a.pass, mask = e.load(a.scope, m, e.parts[chunk], e.tokenWeight(m, len(w.micros)), w.train)
	a.pass.See = e.spoiled(w.train, i, w.peek.layer)
	e.hook(a.pass, w.train && i == len(w.micros)-1)
	var err error
	if a.out, err = e.Stages[chunk].Forward(a.pass, in); err != nil {
		return in, err
	}
	if e.parts[chunk].Head {
		e.device.WeightedSum(e.sums, a.out.Loss, mask)
		if w.peek.done != nil {
			w.peek.done(a.pass, a.out)
		}
		if !w.train {
			w.drop(cell{i, chunk})
			return device.Tensor{}, nil
		}
	}
	w.result.Forward += time.Since(start)
	return a.out.Hidden, nil
}

// hook lets the optimizer bring parameters and take gradients while the pass goes
// through a stage; last: it is the stage's last backward of the step.
func (e *Engine) hook(p *model.Pass, last bool) {
	h := e.Optimizer.Hooks(last)
	p.Use, p.Done, p.Accumulate, p.Gradients = h.Use, h.Done, h.Accumulate, h.Gradients
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

// tokenWeight: by default a step's gradient is the mean over micro-batches of
// each one's mean over its counted tokens; per token, the sum (divided by all
// tokens in the update).
func (e *Engine) tokenWeight(m *Micro, micros int) float64 {
	if e.config.CalculatePerTokenLoss {
		return 1
	}
	return 1 / math.Max(1, m.counted()) / float64(micros)
}

func (w *microBatches) Backward(i, chunk int, dout device.Tensor) (din device.Tensor, err error) {
	start := time.Now()
	e, at := w.engine, cell{i, chunk}
	e.rank.Enter(watch.Backward, e.Iteration+1)
	a := w.alive[at]
	delete(w.alive, at)
	defer w.end(a)
	e.Timers.Start("backward-compute", report.LevelMicro)
	defer e.Timers.Stop("backward-compute")
	if a.in.Given() {
		din = e.device.Arena.Alloc(device.Communication, a.in.DType, a.in.Dims()...)
	}
	err = e.Stages[chunk].Backward(a.pass, a.out, dout, din)
	if dout.Given() {
		e.device.Arena.Free(dout)
	}
	w.result.Backward += time.Since(start)
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

// hiddenRows is the rows of a micro-batch's hidden tensor on this rank.
func (e *Engine) hiddenRows(m *Micro) int64 {
	rows := int64(len(m.Tokens) * len(m.Tokens[0]))
	if e.config.Layout.SequenceParallel {
		rows /= int64(e.rank.Groups[topology.TP].Size())
	}
	return rows
}

// link moves hidden tensors and their gradients between the ranks of a pipeline.
// What it receives belongs to the stage that uses it.
type link struct {
	engine *Engine
	work   *microBatches
	rows   int64
}

func (l *link) Exchange(transfers []schedule.Transfer, values []device.Tensor) (wait func() ([]device.Tensor, error), err error) {
	e := l.engine
	list := make([]comm.Transfer, len(transfers))
	for i, t := range transfers {
		if !t.Send {
			values[i] = e.device.Arena.Alloc(device.Communication, e.dtype, l.rows, int64(e.config.Model.HiddenSize))
		}
		list[i] = comm.Transfer{Peer: t.Peer, Send: t.Send, T: values[i]}
	}
	work := e.rank.Groups[topology.PP].Exchange(list)
	return func() ([]device.Tensor, error) {
		if err := work.Wait(); err != nil {
			return nil, err
		}
		for i, t := range transfers {
			if t.Send {
				l.work.sent(t, values[i])
			}
		}
		return values, nil
	}, nil
}
