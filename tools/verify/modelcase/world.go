package modelcase

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/megatron/schedule"
	"monotron/megatron/training"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// seen is what one rank of a layout held and computed.
type seen struct {
	place     topology.Place
	order     string // of the first step
	params    []*held
	grads     []boxes   // its part of the first step's final gradients
	tokenLoss []float64 // of its rows of batch 0, where it has the head
	steps     []stepSeen
}

// held is one parameter of a rank.
type held struct {
	*mpu.Param
	named       string            // as Megatron's rank names it
	start, grad []float64         // grad: as the first step leaves Param.Grad
	after       map[int][]float64 // by iteration
}

// boxes are values of pieces of a global tensor.
type boxes struct {
	name   string
	global []int64
	pieces []mpu.Piece
	values []float64
}

// of is the parameter's pieces of a tensor with the local values x.
func (p *held) of(x []float64) boxes { return boxes{p.Name, p.Global, p.Pieces, x} }

// stepSeen is what a step told, with the rates before and after it.
type stepSeen struct {
	engine.Result
	next, decay float64
}

// keptAfter are the iterations whose parameters the cases compare.
var keptAfter = []int{1, 10}

// world is a case to be run on all ranks of its layout.
type world struct {
	config  training.Config
	weights *weights
	batches []*engine.Micro // one a step, of all rows
	steps   int
}

// run trains on every rank and gives what each saw, by number.
func (w *world) run(open func() (*device.Device, error)) ([]*seen, error) {
	all := make([]*seen, w.config.Layout.Sizes().World())
	err := ranks.Run(w.config.Ranks(open), func(rank *ranks.Rank) error {
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
	e, err := engine.New(rank, w.config.Config, rates)
	if err != nil {
		return nil, err
	}
	s := &seen{place: rank.Place}
	for chunk, stage := range e.Stages {
		s.params = append(s.params, megatronNames(stage.Params(), chunk, len(e.Stages))...)
	}
	heldAs := map[*mpu.Param]*held{}
	for _, p := range s.params {
		heldAs[p.Param] = p
	}
	err = e.Optimizer.Fill(func(p *mpu.Param) error {
		h := heldAs[p]
		err := w.weights.fill(rank.Device, p)
		h.start, h.after = read(rank.Device, p.Value), map[int][]float64{}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, w.train(e, rank, s)
}

func (w *world) train(e *engine.Engine, rank *ranks.Rank, s *seen) error {
	first := w.rows(w.batches[0], rank.Place.DP)
	plan := w.config.Schedule(len(first), false)
	s.order = schedule.Order(plan.Actions(rank.Place.PP), plan.Chunks)
	err := e.Peek(first, engine.Look{Done: func(p *model.Pass, out *model.Output) {
		s.tokenLoss = append(s.tokenLoss, batchFirst(read(rank.Device, out.Loss), int(p.Batch), 1)...)
	}})
	if err != nil {
		return err
	}
	for i := range w.steps {
		decay := e.Scheduler.WeightDecay()
		step, err := e.Step(w.rows(w.batches[i], rank.Place.DP))
		if err != nil {
			return err
		}
		s.steps = append(s.steps, stepSeen{step, e.Scheduler.LR(), decay})
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
	release, err := e.Optimizer.Whole()
	if err != nil {
		return err
	}
	defer release()
	for _, p := range s.params {
		p.after[iteration] = read(d, p.Value)
	}
	return nil
}

// keepGradients reads the gradients, which carry a factor that times `by` is 1.
func (s *seen) keepGradients(e *engine.Engine, d *device.Device, by float64) {
	for _, p := range s.params {
		if p.Grad.Given() {
			p.grad = scaled(read(d, p.Grad), by)
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

// rows are a data-parallel rank's micro-batches of a global batch.
func (w *world) rows(all *engine.Micro, dp int) (micros []*engine.Micro) {
	n := w.config.MicroBatchSize
	mine := len(all.Tokens) / w.config.Layout.Sizes().DP
	for at := dp * mine; at < (dp+1)*mine; at += n {
		to := at + n
		micros = append(micros, &engine.Micro{Tokens: all.Tokens[at:to], Labels: all.Labels[at:to], LossMask: all.LossMask[at:to],
			PositionIDs: all.PositionIDs[at:to], Samples: all.Samples[at:to]})
	}
	return micros
}

// megatronNames gives the parameters of a stage the names that Megatron's rank
// uses: layers are counted from the stage's first, chunks of several are told
// apart, and the copy of a tied table on the last stage is its output layer.
func megatronNames(params []*mpu.Param, chunk, chunks int) []*held {
	first := -1
	out := make([]*held, len(params))
	for i, p := range params {
		name := p.Name
		if rest, ok := strings.CutPrefix(name, layerPrefix); ok {
			number, tail, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(number)
			if err != nil {
				panic(fmt.Sprintf("modelcase: parameter %q has no layer number", name))
			}
			if first < 0 {
				first = n
			}
			name = fmt.Sprintf("%s%d.%s", layerPrefix, n-first, tail)
		}
		if i > 0 && name == wordTable {
			name = "output_layer.weight"
		}
		if chunks > 1 {
			name = fmt.Sprintf("model%d.%s", chunk, name)
		}
		out[i] = &held{Param: p, named: name}
	}
	return out
}

const (
	layerPrefix = "decoder.layers."
	wordTable   = "embedding.word_embeddings.weight"
)

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
				whole := mpu.Piece{Size: b.global}
				out = make([]float64, whole.Len())
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
