package engine

import (
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
)

func tinyConfig() config.Step {
	return config.Step{
		Model: spec.Model{NumLayers: 2, HiddenSize: 16, FFNHiddenSize: 64, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 8,
			VocabSize: 20, PaddedVocabSize: 32, MaxPositions: 8, Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5,
			Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1, InitStd: 0.02, EmbeddingInitStd: 0.02},
		Optimizer: optimizer.Config{Kind: optimizer.Adam, LR: 0.01, AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, ClipGrad: 1, DecayStyle: "constant", WeightDecayIncrStyle: "constant"},
		Precision: config.F32, SeqLength: 8, Seed: 1, CheckForNaN: true,
	}
}

// What schedules are made for: steps of samples.
const testSteps, testSamples = 100, 4

func newTestEngine(t *testing.T, c config.Step) *Engine {
	t.Helper()
	return newTestEngineOn(t, ref.Open(), c)
}

func newTestEngineOn(t *testing.T, d *device.Device, c config.Step) *Engine {
	t.Helper()
	s, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(ranks.Alone(d), c, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Initialize(); err != nil {
		t.Fatal(err)
	}
	return e
}

func newEngineOf(r *ranks.Rank, c config.Step) (*Engine, error) {
	s, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
	if err != nil {
		return nil, err
	}
	return New(r, c, s)
}

// testBatch is `rows` samples cut into micro-batches of `size`.
func testBatch(rows, size, seq int) (micros []*Micro) {
	for r := 0; r < rows; r++ {
		if r%size == 0 {
			micros = append(micros, &Micro{})
		}
		m := micros[len(micros)-1]
		tokens, labels, mask, positions := make([]int32, seq), make([]int32, seq), make([]float32, seq), make([]int32, seq)
		for i := range seq {
			tokens[i], labels[i] = int32((r*5+i*3)%20), int32((r*5+i*3+3)%20)
			mask[i], positions[i] = 1, int32(i)
		}
		m.Tokens, m.Labels = append(m.Tokens, tokens), append(m.Labels, labels)
		m.LossMask, m.PositionIDs = append(m.LossMask, mask), append(m.PositionIDs, positions)
		m.Samples = append(m.Samples, int32(r))
	}
	return micros
}

// Claim: the step learns, from ln(20) to nearly nothing on one batch.
func TestStepLearnsABatch(t *testing.T) {
	for _, precision := range []string{config.F32, config.BF16, config.FP16} {
		c := tinyConfig()
		c.Precision = precision
		c.Optimizer.InitialLossScale, c.Optimizer.MinLossScale, c.Optimizer.LossScaleWindow, c.Optimizer.LossHysteresis = 1024, 1, 1000, 2
		e := newTestEngine(t, c)
		var first, last float64
		for i := range 60 {
			r, err := e.Step(testBatch(4, 2, 8))
			if err != nil {
				t.Fatal(err)
			}
			if last = r.Loss; i == 0 {
				first = r.Loss
			}
		}
		if math.Abs(first-math.Log(20)) > 0.05 || last > 0.1 {
			t.Errorf("%s: loss from %.4f (ln 20 = %.4f) to %.4f", precision, first, math.Log(20), last)
		}
	}
}

// Claim (docs/parallel.md, what stays equal): masks depend on the position in the global batch,
// not in the micro-batch: one batch of four and four of one take the same step
// but for rounding, with dropout on.
func TestMicroBatchesDoNotChangeTheStep(t *testing.T) {
	c := tinyConfig()
	c.Model.HiddenDropout, c.Model.AttentionDropout = 0.1, 0.1
	var losses, norms []float64
	for _, size := range []int{1, 2, 4} {
		r, err := newTestEngine(t, c).Step(testBatch(4, size, 8))
		if err != nil {
			t.Fatal(err)
		}
		losses, norms = append(losses, r.Loss), append(norms, r.Update.GradNorm)
	}
	for i := range losses {
		if math.Abs(losses[i]-losses[0]) > 1e-6 || math.Abs(norms[i]-norms[0]) > 1e-5*norms[0] {
			t.Errorf("losses %v, gradient norms %v", losses, norms)
		}
	}
}

// Claim: nothing of a step's memory outlives it.
func TestStepFreesItsActivations(t *testing.T) {
	e := newTestEngine(t, tinyConfig())
	before := e.device.Arena.Usage().Now[device.Activations]
	if _, err := e.Step(testBatch(4, 2, 8)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Loss(testBatch(4, 2, 8)); err != nil {
		t.Fatal(err)
	}
	if after := e.device.Arena.Usage().Now[device.Activations]; after != before {
		t.Errorf("%d bytes of activations before, %d after", before, after)
	}
}
