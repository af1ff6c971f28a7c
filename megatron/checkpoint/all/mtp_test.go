package all

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// numbered is weights in memory: no two elements of the model are alike.
type numbered struct {
	model *spec.Model
	list  []checkpoint.Tensor
	first map[string]int64 // number of a tensor's first element
}

func newNumbered(m *spec.Model) *numbered {
	n := &numbered{model: m, first: map[string]int64{}}
	at := int64(0)
	for _, t := range checkpoint.Expected(m) {
		t.Name, t.DType = checkpoint.Model+t.Name, "F32"
		n.list, n.first[t.Name] = append(n.list, t), at
		at += checkpoint.Volume(t.Shape)
	}
	return n
}

func (n *numbered) Info() checkpoint.Info        { return checkpoint.Info{Path: "memory", Model: n.model} }
func (n *numbered) Tensors() []checkpoint.Tensor { return n.list }
func (n *numbered) State() checkpoint.State      { return checkpoint.State{Iteration: 3} }
func (n *numbered) Close() error                 { return nil }

func (n *numbered) Read(name string, box mpu.Piece, dst []byte) error {
	for _, t := range n.list {
		if t.Name == name {
			box.Runs(t.Shape, func(at, local, count int64) {
				for i := range count {
					binary.LittleEndian.PutUint32(dst[4*(local-box.Local+i):], math.Float32bits(float32(n.first[name]+at+i)))
				}
			})
		}
	}
	return nil
}

// Claim: layers of multi-token prediction, with latent attention and experts, come back bit for
// bit from Megatron's formats, whatever layout and names they are written with, and the model
// with them; without them the rest of the model stays.
func TestMTPTravels(t *testing.T) {
	m := &spec.Model{NumLayers: 2, HiddenSize: 8, FFNHiddenSize: 16, NumAttentionHeads: 2, NumQueryGroups: 2, VocabSize: 16, PaddedVocabSize: 16, Context: 8,
		Position: spec.PositionRope, RotaryBase: 10000, RotaryPercent: 1, Normalization: spec.RMSNorm, NormEpsilon: 1e-5, WindowLeft: -1, Activation: spec.Swiglu, InitStd: 0.02, EmbeddingInitStd: 0.02,
		Latent:  &spec.Latent{QRank: 4, KVRank: 4, QKDim: 2, RopeDim: 2, VDim: 2, Norms: true, Factor: 1, MScale: 1, OriginalMax: spec.YarnOriginalMax, FastTurns: spec.YarnFastTurns, SlowTurns: spec.YarnSlowTurns},
		Experts: &spec.Experts{Num: 4, FFNHiddenSize: 6, TopK: 2, ScoreFunction: spec.ScoreSigmoid, ExpertBias: true, Layers: []bool{false, true}, Dispatcher: spec.AllToAllDispatcher, Balancing: []string{spec.NoBalancing}, AuxLossCoeff: []float64{0}},
		MTP:     &spec.MTP{Depths: 2, LossScale: 0.3}}
	m.KVChannels = m.Latent.Channels()
	src := newNumbered(m)
	for name, o := range map[string]checkpoint.WriteOptions{
		"one rank":            {VocabDivisor: 1},
		"tp 2, pp 2":          {VocabDivisor: 1, Layout: checkpoint.Layout{TP: 2, PP: 2}},
		"experts, TE's names": {VocabDivisor: 1, Layout: checkpoint.Layout{EP: 2, PP: 2}, TransformerImpl: "transformer_engine", GroupedExperts: true},
	} {
		for _, format := range []checkpoint.Format{checkpoint.MegatronTorch, checkpoint.MegatronTorchDist} {
			out := filepath.Join(t.TempDir(), "out")
			if _, err := Write(context.Background(), format, out, src, o); err != nil {
				t.Fatal(name, format, err)
			}
			back := open(t, out)
			if got := back.Info().Model.MTP; got == nil || *got != *m.MTP {
				t.Errorf("%s, %s: %+v", name, format, got)
			}
			if len(back.Tensors()) != len(src.list) {
				t.Errorf("%s, %s: %d tensors of %d", name, format, len(back.Tensors()), len(src.list))
			}
			for _, want := range src.list {
				a, err := checkpoint.ReadAll(src, want)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := checkpoint.ReadAll(back, want); err != nil || !bytes.Equal(a, b) {
					t.Errorf("%s, %s: %s differs: %v", name, format, want.Name, err)
				}
			}
		}
	}
	alone, left := checkpoint.WithoutMTP(src)
	without := *m
	without.MTP = nil
	if want := len(checkpoint.Expected(&without)); left != 2 || len(alone.Tensors()) != want || alone.Info().Model.MTP != nil {
		t.Errorf("%d layers left out, %d tensors stay of %d", left, len(alone.Tensors()), want)
	}
}
