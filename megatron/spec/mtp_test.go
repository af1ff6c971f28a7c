package spec

import "testing"

// predicting is the model of golden/model/mtp-2.
func predicting() *Model {
	return &Model{NumLayers: 2, HiddenSize: 32, NumAttentionHeads: 4, NumQueryGroups: 2, KVChannels: 8, FFNHiddenSize: 40, VocabSize: 96, PaddedVocabSize: 96,
		Position: PositionRope, Normalization: RMSNorm, Activation: Swiglu, WindowLeft: -1, MTP: &MTP{Depths: 2}}
}

// Claim: parameters are those of golden/model/mtp-2 and mtp-2-repeated, where a layer has 6976:
// 64*32 + 32*32 of attention, 80*32 + 32*40 of the MLP, 2*32 of norms; one of multi-token
// prediction 32*64 + 3*32 more; embedding, output layer and final norm have 2*96*32 + 32.
func TestParametersOfMTP(t *testing.T) {
	m := predicting()
	const layer, around, rest = 6976, 32*64 + 3*32, 2*96*32 + 32
	if got, want := m.Parameters(), int64(rest+4*layer+2*around); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
	m.MTP.Repeated = true
	if got, want := m.Parameters(), int64(rest+3*layer+around); got != want {
		t.Errorf("%d parameters with a repeated layer, want %d", got, want)
	}
	if got := m.LayerName(2); got != "mtp.layers.0.mtp_model_layer" || m.AllLayers() != 3 || m.Uses(1) != 1 || m.Uses(2) != 2 {
		t.Errorf("%q, %d layers, used %d and %d times", got, m.AllLayers(), m.Uses(1), m.Uses(2))
	}
}

// Claim: by Megatron's formula (num_floating_point_operations) each depth adds a layer, 3h + 2h^2
// and the logits, with a repeated layer too.
func TestFLOPsOfMTP(t *testing.T) {
	m := predicting()
	const h, layer, attention, logits = 32, 32*(2*32+2*16) + 32*40*3, 16 * 32, 32 * 96 // of a token of 16
	want := 6 * 16 * float64(4*(layer+attention)+3*logits+2*(3*h+2*h*h))
	for _, repeated := range []bool{false, true} {
		m.MTP.Repeated = repeated
		if got := m.FLOPs(1, 16); got != want {
			t.Errorf("%v operations, want %v", got, want)
		}
	}
}

// Claim: a layer of multi-token prediction is like the decoder's last in all that layers differ in.
func TestMTPIsLikeTheLastLayer(t *testing.T) {
	m := predicting()
	m.WindowLeft, m.Windowed, m.NoRope, m.Experts = 4, []bool{false, true}, []bool{false, true}, &Experts{Num: 2, Layers: []bool{false, true}}
	for _, layer := range []int{1, 2, 3} {
		if m.WindowAt(layer) != 4 || m.RopeAt(layer) || !m.MixtureAt(layer) || !m.WindowedAt(layer) {
			t.Errorf("layer %d: window %d, rope %v, experts %v", layer, m.WindowAt(layer), m.RopeAt(layer), m.MixtureAt(layer))
		}
	}
}
