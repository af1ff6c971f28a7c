package modelcase

import (
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/megatron/schedule"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// seen is what one rank of a layout had and computed.
type seen struct {
	coordinates topology.Coordinates
	order       string // of the first step
	params      []*value
	grads       []boxes   // its part of the first step's final gradients
	tokenLoss   []float64 // of its rows of batch 0, where it has the head
	routed      routings  // of the same
	experts     topology.ExpertCoordinates
	steps       []stepSeen
}

// boxes are values of pieces of a global tensor.
type boxes struct {
	name   string
	global []int64
	pieces []mpu.Piece
	values []float64
}

// stepSeen is what a step reported, with the rates before and after it.
type stepSeen struct {
	engine.Result
	next, decay float64
	bias        biases // of the rank's stages
}

// keptAfter are the iterations whose parameters the cases compare.
var keptAfter = []int{1, 10}

// world is a case to be run on all ranks of its layout.
type world struct {
	config  config.Run
	weights *weights
	batches []*engine.Micro // one a step, of all rows
	steps   int
}

// run trains on every rank and gives what each saw, by number.
func (w *world) run(open func() (*device.Device, error)) ([]*seen, error) {
	all := make([]*seen, w.config.Layout.Sizes().World())
	err := ranks.Run(engine.Ranks(&w.config.Step, open), func(rank *ranks.Rank) error {
		s, err := w.on(rank)
		all[rank.Number] = s
		return err
	})
	return all, err
}

// on is the work of one rank.
func (w *world) on(rank *ranks.Rank) (*seen, error) {
	rates, err := w.config.Optimizer.Schedule(max(1, w.config.TrainIters), w.config.TrainSamples, w.config.GlobalBatchSize)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(rank, w.config.Step, rates)
	if err != nil {
		return nil, err
	}
	// Parameters under Megatron's names, filled with the case's weights.
	s := &seen{coordinates: rank.Coordinates, experts: rank.Sizes.ExpertAt(rank.Number), routed: routings{}}
	for chunk, stage := range e.Stages {
		s.params = append(s.params, megatronNames(stage.Params(), chunk, len(e.Stages))...)
	}
	err = e.Optimizer.Fill(func(p *mpu.Param) error {
		err := w.weights.fill(rank.Device, p)
		values := read(rank.Device, p.Value)
		for _, h := range s.params {
			if h.param == p {
				h.start, h.after = h.part(values), map[int][]float64{}
			}
		}
		return err
	})
	if err == nil {
		err = w.weights.fillBuffers(rank.Device, e.Stages)
	}
	if err != nil {
		return nil, err
	}
	return s, w.train(e, rank, s)
}

func (w *world) train(e *engine.Engine, rank *ranks.Rank, s *seen) error {
	first := w.rows(w.batches[0], rank.Coordinates.DP)
	plan := w.config.PipelineSchedule(len(first), false)
	s.order = schedule.Order(plan.Actions(rank.Coordinates.PP), plan.Chunks)
	observe := engine.Observer{
		Done: func(p *model.Pass, out *model.Output) {
			s.tokenLoss = append(s.tokenLoss, batchFirst(read(rank.Device, out.Loss), int(p.Batch), 1)...)
		},
		Routed: func(layer int, r model.Routing) {
			s.routed.add(rank.Device, layer, w.config.MicroBatchSize, r)
		},
	}
	for i := range w.steps {
		decay := e.Scheduler.WeightDecay()
		step, err := e.StepSeen(w.rows(w.batches[i], rank.Coordinates.DP), observe)
		if err != nil {
			return err
		}
		observe = engine.Observer{} // it is shown the first step
		s.steps = append(s.steps, stepSeen{step, e.Scheduler.LR(), decay, expertBias(e, &w.config.Model, rank.Device)})
		if i == 0 {
			s.keepGradients(e, rank.Device, 1/step.Factor)
		}
		if slices.Contains(keptAfter, i+1) || i+1 == w.steps {
			if err := s.keepValues(e, rank.Device, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepValues reads the parameters, of which other ranks may have shards.
func (s *seen) keepValues(e *engine.Engine, d *device.Device, iteration int) error {
	release, err := e.Optimizer.Gather()
	if err != nil {
		return err
	}
	defer release()
	for _, p := range s.params {
		p.after[iteration] = p.part(read(d, p.param.Value))
	}
	return nil
}

// keepGradients reads the gradients, which carry a factor that times `by` is 1.
func (s *seen) keepGradients(e *engine.Engine, d *device.Device, by float64) {
	for _, p := range s.params {
		if p.param.Grad.Given() {
			p.grad = scaled(p.part(read(d, p.param.Grad)), by)
		}
	}
	for _, g := range e.Optimizer.Gradients() {
		s.grads = append(s.grads, boxes{g.Name, g.Global, g.Pieces, scaled(read(d, g.Tensor), by)})
	}
}

func scaled(x []float64, by float64) []float64 {
	for i := range x {
		x[i] *= by
	}
	return x
}

// rows are a data-parallel rank's micro-batches of a global batch: they are dealt in turn.
func (w *world) rows(all *engine.Micro, dp int) (micros []*engine.Micro) {
	for i, m := range cutRows(all, w.config.MicroBatchSize) {
		if i%w.config.Layout.Sizes().DP == dp {
			micros = append(micros, m)
		}
	}
	return micros
}

// tokenLosses are those of all rows, in the order of the batch.
func (w *world) tokenLosses(all []*seen) (losses []float64) {
	seq, rows, sizes := len(w.batches[0].Tokens[0]), w.config.MicroBatchSize, w.config.Layout.Sizes()
	for micro := range len(w.batches[0].Tokens) / (rows * sizes.DP) {
		for dp := range sizes.DP {
			part := make([]float64, rows*seq)
			for _, s := range all {
				if s.coordinates.TP == 0 && s.coordinates.DP == dp && len(s.tokenLoss) > 0 {
					w.spread(part, s, micro)
				}
			}
			losses = append(losses, part...)
		}
	}
	return losses
}

// spread puts a rank's losses of a micro-batch at their positions among those of complete samples:
// with context parallelism a rank has some of their positions.
func (w *world) spread(part []float64, s *seen, micro int) {
	seq, cp := len(w.batches[0].Tokens[0]), w.config.Layout.Sizes().CP
	own := s.tokenLoss[micro*len(part)/cp:][:len(part)/cp]
	for sample := 0; sample < len(part); sample += seq {
		for _, span := range mpu.AllPositions(int64(seq)).ZigZag(s.coordinates.CP, cp) {
			own = own[copy(part[sample+int(span.From):][:span.N], own):]
		}
	}
}

// assembled is the global tensor of that name, put together from the boxes that
// parts lists of each rank; nil: there are none.
func assembled(all []*seen, name string, parts func(*seen) []boxes) []float64 {
	var out []float64
	for _, s := range all {
		for _, b := range parts(s) {
			if b.name != name {
				continue
			}
			if out == nil {
				full := mpu.Piece{Size: b.global}
				out = make([]float64, full.Len())
			}
			for _, piece := range b.pieces {
				piece.Runs(b.global, func(at, from, n int64) { copy(out[at:at+n], b.values[from:from+n]) })
			}
		}
	}
	return out
}

// finalGradients, started and after are what assembled puts together.
func finalGradients(s *seen) []boxes { return s.grads }

func started(s *seen) (all []boxes) {
	for _, p := range s.params {
		all = append(all, p.of(p.start))
	}
	return all
}

func after(iteration int) func(*seen) []boxes {
	return func(s *seen) (all []boxes) {
		for _, p := range s.params {
			all = append(all, p.of(p.after[iteration]))
		}
		return all
	}
}
