package inference_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"monotron/csrc/ref"
	"monotron/megatron/checkpoint"
	"monotron/megatron/inference"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// weights are those of a model in memory, each element by its tensor and index.
type weights struct{ model *spec.Model }

func (w weights) Info() checkpoint.Info   { return checkpoint.Info{Path: "memory", Model: w.model} }
func (w weights) State() checkpoint.State { return checkpoint.State{} }
func (w weights) Close() error            { return nil }

func (w weights) Tensors() (list []checkpoint.Tensor) {
	for _, t := range checkpoint.Expected(w.model) {
		list = append(list, checkpoint.Tensor{Name: checkpoint.Model + t.Name, DType: "F32", Shape: t.Shape})
	}
	return list
}

func (w weights) Read(name string, box mpu.Piece, dst []byte) error {
	for _, t := range w.Tensors() {
		if t.Name == name {
			box.Runs(t.Shape, func(at, local, n int64) {
				for i := range n {
					value := math.Sin(float64(len(name)*1000 + int(at+i)))
					binary.LittleEndian.PutUint32(dst[4*(local-box.Local+i):], math.Float32bits(float32(value)))
				}
			})
		}
	}
	return nil
}

// Claim: generation computes the decoder alone: with layers of multi-token prediction in the
// checkpoint its logits are those without them, and their weights take no memory.
func TestGenerationLeavesMTPOut(t *testing.T) {
	m := &spec.Model{NumLayers: 1, HiddenSize: 8, FFNHiddenSize: 16, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4, VocabSize: 16, PaddedVocabSize: 16, Context: 8,
		Position: spec.PositionRope, RotaryBase: 10000, RotaryPercent: 1, Normalization: spec.RMSNorm, NormEpsilon: 1e-5, WindowLeft: -1, Activation: spec.Swiglu}
	ahead := *m
	ahead.MTP = &spec.MTP{Depths: 2, LossScale: 0.1}
	var logits [2][]float32
	for i, model := range []*spec.Model{m, &ahead} {
		d := ref.Open()
		l, err := inference.FromSource(d, weights{model}, inference.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(l.Stages[0].Params()); n != len(checkpoint.Expected(m)) {
			t.Errorf("%d parameters, the decoder has %d", n, len(checkpoint.Expected(m)))
		}
		if err := l.Generator.Logits([]int32{1, 5, 3}, func(_ int, row []float32) error {
			logits[i] = append(logits[i], row...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	if len(logits[0]) != 3*16 || !slices.Equal(logits[0], logits[1]) {
		t.Errorf("%v, want %v", logits[1], logits[0])
	}
}
