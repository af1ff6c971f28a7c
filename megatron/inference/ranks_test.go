package inference

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

func openRef() (*device.Device, error) { return ref.Open(), nil }

// Claim: ranks that share a model, by tensors, by stages, by the positions of the prompt or by several of these, give the ids of
// one rank, greedy and by beams, on every rank, and its logits but for rounding;
// with a shared query group, a vocabulary that they cannot cut evenly, and a tied
// table that both ends have.
func TestRanksAgreeWithOne(t *testing.T) {
	for name, change := range map[string]func(*spec.Model){
		"gpt2": func(m *spec.Model) { m.NumLayers, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 3, 4, 4, 4 },
		"llama": func(m *spec.Model) {
			m.Position, m.MaxPositions, m.Context, m.Tied = spec.PositionRope, 0, 24, false
			m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 4, 2, 4
		},
		"latent":      latent,
		"shared keys": sharedKeys,
		"experts": func(m *spec.Model) {
			m.Position, m.MaxPositions, m.Context, m.Tied = spec.PositionRope, 0, 24, false
			m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels, m.LinearBias = 4, 4, 4, false
			m.Experts = &spec.Experts{Num: 4, FFNHiddenSize: 8, TopK: 2, ScoreFunction: spec.ScoreSoftmax, Layers: slices.Repeat([]bool{true}, m.NumLayers),
				Balancing: []string{spec.NoBalancing}, AuxLossCoeff: []float64{0}, DropPolicy: spec.DropByWeight, Dispatcher: spec.AllToAllDispatcher}
		},
	} {
		l, dir, prompt := tiny(t, change), t.TempDir(), []int32{3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 7}
		save(t, dir, l, 1, stored{Model: l.Model, Precision: "f32", SeqLength: 24})
		full, err := l.Sample(prompt, SampleOptions{MaxNew: 12, Sampling: Sampling{NoRepeatNgram: 3}})
		if err != nil {
			t.Fatal(err)
		}
		greedy := full.IDs
		search := BeamOptions{Beams: 5, MaxNew: 10, LengthPenalty: 1, NoRepeatNgram: 4, Ends: []int32{2}}
		beams, err := l.Beam(prompt, search)
		if err != nil {
			t.Fatal(err)
		}
		want := logProbs(t, l, prompt)
		layouts := []Layout{{TP: 1}, {TP: 2}, {PP: 2}, {TP: 2, PP: 2}, {TP: 4}, {CP: 2}, {CP: 3}, {CP: 2, TP: 2}, {CP: 2, PP: 2}}
		if l.Model.Experts != nil {
			layouts = append(layouts, Layout{EP: 2}, Layout{EP: 4}, Layout{TP: 2, EP: 2}, Layout{TP: 2, EP: 4}, Layout{TP: 4, EP: 2}, Layout{EP: 2, PP: 2}, Layout{CP: 2, TP: 2, EP: 2})
		}
		for _, layout := range layouts {
			if l.Model.OneStage() != "" && layout.PP > 1 {
				continue
			}
			err := Run(layout, openRef, dir, LoadOptions{Step: -1}, func(rank int, m *Loaded) error {
				where := fmt.Sprintf("%s %+v rank %d", name, layout, rank)
				got, err := m.Sample(prompt, SampleOptions{MaxNew: 12, Sampling: Sampling{NoRepeatNgram: 3}})
				if err != nil {
					return err
				}
				if !slices.Equal(got.IDs, greedy) {
					t.Errorf("%s: greedy %v, one rank %v", where, got.IDs, greedy)
				}
				found, err := m.Beam(prompt, search)
				if err != nil {
					return err
				}
				for i, b := range found {
					if !slices.Equal(b.IDs, beams[i].IDs) || math.Abs(b.Score-beams[i].Score) > 1e-5 {
						t.Errorf("%s: beam %d is %v %.6f, one rank's %v %.6f", where, i, b.IDs, b.Score, beams[i].IDs, beams[i].Score)
					}
				}
				return m.Logits(prompt, func(p int, logits []float32) error {
					for id, lp := range LogSoftmax(logits) {
						if math.Abs(lp-want[p][id]) > 1e-5 {
							t.Errorf("%s: position %d token %d: log p %g, one rank %g", where, p, id, lp, want[p][id])
						}
					}
					return nil
				})
			})
			if err != nil {
				t.Errorf("%s %+v: %v", name, layout, err)
			}
		}
	}
}

// latent makes attention latent, with values narrower than keys.
func latent(m *spec.Model) {
	m.Position, m.MaxPositions, m.Context, m.Tied, m.LinearBias, m.QKVBias = spec.PositionRope, 0, 24, false, false, false
	m.Normalization, m.NumAttentionHeads, m.NumQueryGroups = spec.RMSNorm, 4, 4
	m.Latent = &spec.Latent{QRank: 6, KVRank: 5, QKDim: 4, RopeDim: 2, VDim: 3, Norms: true, Factor: 1, MScale: 1}
	m.KVChannels = m.Latent.Channels()
}

// sharedKeys lets the last layer read the keys and values of the first.
func sharedKeys(m *spec.Model) {
	m.Position, m.MaxPositions, m.Context, m.LinearBias, m.QKVBias = spec.PositionRope, 0, 24, false, false
	m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels, m.Normalization, m.Activation = 4, 2, 4, spec.RMSNorm, spec.Swiglu
	m.QKNorm, m.ValueNorm, m.KVShared, m.WideShared, m.PerLayerInput = true, true, 1, true, 3
}

// Claim: a layout that the model cannot have is one usage error, without a rank's
// number, and a rank's own error ends all of them.
func TestRanksRefuse(t *testing.T) {
	l, dir := tiny(t, nil), t.TempDir()
	save(t, dir, l, 1, stored{Model: l.Model, Precision: "f32", SeqLength: 24})
	nothing := func(int, *Loaded) error { return nil }
	for says, layout := range map[string]Layout{"attention heads": {TP: 3}, "layers": {PP: 3}, "has no experts": {EP: 2}, "one of them must divide the other": {TP: 2, EP: 3},
		"--context-parallel-size 2 needs --expert-model-parallel-size of at most --tensor-model-parallel-size 1": {CP: 2, EP: 2}} {
		err := Run(layout, openRef, dir, LoadOptions{Step: -1}, nothing)
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) || strings.HasPrefix(err.Error(), "rank") {
			t.Errorf("%+v: %v", layout, err)
		}
	}
	err := Run(Layout{TP: 2}, openRef, dir, LoadOptions{Step: -1}, func(rank int, m *Loaded) error {
		if rank == 1 {
			return exitcode.Errorf(exitcode.BadData, "no more")
		}
		_, err := m.Sample(prompt, SampleOptions{MaxNew: 3})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("a rank that fails: %v", err)
	}
}

// Claim: ranks do not share prompts of models whose layers keep a state.
func TestStatesAreOfOneRank(t *testing.T) {
	l, dir := tiny(t, func(m *spec.Model) {
		m.Delta = &spec.Delta{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 18, Taps: 4, Layers: make([]bool, m.NumLayers)}
		m.Delta.Layers[0] = true
	}), t.TempDir()
	save(t, dir, l, 1, stored{Model: l.Model, Precision: "f32", SeqLength: 24})
	err := Run(Layout{CP: 2}, openRef, dir, LoadOptions{Step: -1}, func(int, *Loaded) error { return nil })
	if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--context-parallel-size 2") {
		t.Error(err)
	}
}
