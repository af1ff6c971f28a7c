package timing

import (
	"math/rand/v2"

	"monotron/internal/logging"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
)

// Seed is that of weights and tokens.
const Seed = 1234

// Shape is what a training step computes.
type Shape struct {
	Model     spec.Model
	Rows, Seq int // of a micro-batch: samples, and tokens of each
	Precision string
	Graphs    bool
}

// Config is set as for a run of gpt2: AdamW, clipping by 1, weight decay 0.1.
func Config(s Shape) config.Run {
	return config.Run{
		Step: config.Step{Model: s.Model, Precision: s.Precision, SeqLength: s.Seq, Seed: Seed, CheckForNaN: true,
			Optimizer: optimizer.Config{Kind: optimizer.Adam, LR: 1e-4, MinLR: 1e-5, AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, ClipGrad: 1,
				WeightDecay: 0.1, WeightDecayIncrStyle: optimizer.DecayConstant, DecayStyle: optimizer.DecayCosine,
				InitialLossScale: 65536, MinLossScale: 1, LossScaleWindow: 1000, LossHysteresis: 2}},
		MicroBatchSize: s.Rows, GlobalBatchSize: s.Rows, TrainIters: 1000, VocabDivisor: 128, Graphs: s.Graphs,
	}
}

// NewEngine is an engine whose parameters have yet to be given values.
func NewEngine(r *ranks.Rank, c config.Run) (*engine.Engine, error) {
	schedule, err := c.Optimizer.Schedule(c.TrainIters, 0, c.GlobalBatchSize)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(r, c.Step, schedule)
	if err != nil {
		return nil, err
	}
	if r.Device.IsGPU() {
		err = e.ChooseAttention(engine.MicroShapes{Batches: []int64{int64(c.MicroBatchSize)}}, logging.Stderr().From("bench").Info)
	}
	return e, err
}

// RandomTokens is a micro-batch in the form that the data path gives.
func RandomTokens(random *rand.Rand, s Shape) *engine.Micro {
	m := &engine.Micro{}
	for j := range s.Rows {
		row, mask, positions := make([]int32, s.Seq+1), make([]float32, s.Seq), make([]int32, s.Seq)
		for i := range row {
			row[i] = random.Int32N(int32(s.Model.VocabSize))
		}
		for i := range mask {
			mask[i], positions[i] = 1, int32(i)
		}
		m.Tokens, m.Labels = append(m.Tokens, row[:s.Seq]), append(m.Labels, row[1:])
		m.LossMask, m.PositionIDs = append(m.LossMask, mask), append(m.PositionIDs, positions)
		m.Samples = append(m.Samples, int32(j))
	}
	return m
}
