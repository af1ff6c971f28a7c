package engine

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Observer receives what a pass computes; each of its functions may be nil.
type Observer struct {
	Layer  func(depth int, x device.Tensor)                // the residual stream of this rank's layers: model.Pass.See
	Done   func(*model.Pass, *model.Output)                // the last stage's output, before it is released
	Routed func(layer int, r model.Routing)                // what layers of experts chose
	Ahead  func(depth int, p *model.Pass, x device.Tensor) // the states of multi-token prediction: model.Pass.SeeAhead
	Micro  func(micro, chunk int)                          // which forward or backward begins
	// Whose parameters, or gradients, it uses next: embedding, decoder.layers.3, head.
	Unit  func(name string)
	Again bool // of a training step that is run again: what --inject spoiled is spoiled again
}

func (l Observer) begin(micro, chunk int) {
	if l.Micro != nil {
		l.Micro(micro, chunk)
	}
}

// ahead is what a pass shows its states of multi-token prediction to.
func (l Observer) ahead(p *model.Pass) func(depth int, x device.Tensor) {
	if l.Ahead == nil {
		return nil
	}
	return func(depth int, x device.Tensor) { l.Ahead(depth, p, x) }
}

// follow reports which units a pass reaches.
func (l Observer) follow(p *model.Pass) {
	if l.Unit == nil {
		return
	}
	reported := func(then func([]*mpu.Param) error) func([]*mpu.Param) error {
		return func(ps []*mpu.Param) error {
			if len(ps) > 0 {
				l.Unit(ps[0].Unit)
			}
			if then == nil {
				return nil
			}
			return then(ps)
		}
	}
	p.Use, p.Accumulate = reported(p.Use), reported(p.Accumulate)
}

// Peek runs micro-batches forward, without dropout, and passes the results to observer.
func (e *Engine) Peek(micros []*Micro, observer Observer) error {
	e.device.Fill(e.sums, 0)
	e.weighed = [2]float64{}
	return e.run(micros, false, &Result{}, observer)
}

// Loss computes the mean loss over micro-batches without training: Σ loss and
// Σ counted tokens of all ranks.
func (e *Engine) Loss(micros []*Micro) (sum, tokens float64, err error) {
	if err = e.Peek(micros, e.Observer); err != nil {
		return 0, 0, fmt.Errorf("evaluating: %w", err)
	}
	return e.Totals()
}

// Micro is the micro-batch that goes forward, for code that inspects a pass.
func (e *Engine) Micro() int { return e.micro }

// Totals adds up the ranks' sums after a pass: Σ loss·mask and Σ mask of all samples.
func (e *Engine) Totals() (loss, tokens float64, err error) {
	if err = e.sumTotals(); err != nil {
		return 0, 0, err
	}
	sums := device.ReadSlice[float64](e.device, e.sums)
	return sums[0], sums[1], e.device.Sync()
}

// sumTotals adds up the ranks' sums, and votes, where they lie.
func (e *Engine) sumTotals() error {
	e.writeWeighed()
	if e.rank.Coordinates.TP != 0 {
		e.device.Fill(e.sums, 0) // each rank of a tensor-parallel group has seen the same losses
	}
	return e.rank.World().AllReduce(e.Optimizer.Extra, comm.Sum).Wait()
}

// spoiled shows the residual stream to observer, after --inject has put a NaN into it
// where that is asked for: in a step's first micro-batch.
func (e *Engine) spoiled(train bool, micro int, observer Observer) func(int, device.Tensor) {
	e.micro = micro
	if e.rank.Inject == nil || micro > 0 || !(train || observer.Again) {
		return observer.Layer
	}
	return func(depth int, x device.Tensor) {
		if e.rank.Inject.Spoils(e.Iteration+1, depth) {
			e.poison(x)
		}
		if observer.Layer != nil {
			observer.Layer(depth, x)
		}
	}
}

// poison makes the first element of x a NaN.
func (e *Engine) poison(x device.Tensor) {
	first := x.Reshape(x.Len()).Slice(0, 0, 1)
	nan := uint32(0x7fc00000)
	switch x.DType {
	case device.F32:
		device.WriteSlice(e.device, first, []uint32{nan})
	case device.BF16:
		device.WriteSlice(e.device, first, []uint16{uint16(nan >> 16)})
	case device.F16:
		device.WriteSlice(e.device, first, []uint16{0x7e00})
	}
}

// countRight adds the counted tokens whose label has the largest logit.
func (e *Engine) countRight(p *model.Pass, out *model.Output, mask device.Tensor) {
	if !p.Choices || e.device.Counts() || e.rank.Coordinates.TP > 0 { // each rank of a tensor-parallel group sees the same
		return
	}
	best, labelled, counts := device.ReadSlice[float32](e.device, out.Best), device.ReadSlice[float32](e.device, out.Target), device.ReadSlice[float32](e.device, mask)
	for i, count := range counts {
		if labelled[i] >= best[i] {
			e.Right += float64(count)
		}
	}
}
