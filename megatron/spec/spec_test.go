package spec

import (
	"math"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: the formula gives the parameter counts published with the weights
// (model cards on Hugging Face; unpadded vocabulary).
func TestParametersOfPublishedModels(t *testing.T) {
	for name, want := range map[string]int64{
		"gpt2-124m":     124_439_808,
		"gpt2-350m":     354_823_168,
		"gpt2-774m":     774_030_080,
		"gpt2-1.5b":     1_557_611_200,
		"llama2-7b":     6_738_415_616,
		"llama2-13b":    13_015_864_320,
		"llama2-70b":    68_976_648_192,
		"llama3-8b":     8_030_261_248,
		"llama3-70b":    70_553_706_496,
		"mistral-7b":    7_241_732_096,
		"mixtral-8x7b":  46_702_792_704,
		"qwen3-30b-a3b": 30_532_122_624,
		"qwen2-0.5b":    494_032_768,
		"qwen2-7b":      7_615_616_512,
		"bloom-560m":    559_214_592,
		"bloom-176b":    176_247_271_424,
	} {
		m, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		m.PaddedVocabSize = m.VocabSize
		if got := m.Parameters(); got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
	}
}

// Claim: the count equals the one Megatron prints (golden cases pretrain-gpt2
// and pretrain-llama).
func TestParametersMegatronPrints(t *testing.T) {
	gpt := Model{NumLayers: 2, HiddenSize: 32, FFNHiddenSize: 128, NumAttentionHeads: 4, NumQueryGroups: 4, KVChannels: 8,
		PaddedVocabSize: PadVocab(100, 16, 1), MaxPositions: 32, Position: PositionLearned, Normalization: LayerNorm,
		Activation: GeluTanh, LinearBias: true, QKVBias: true, Tied: true}
	if got := gpt.Parameters(); got != 30080 {
		t.Errorf("gpt2: %d, want 30080", got)
	}
	llama := Model{NumLayers: 2, HiddenSize: 32, FFNHiddenSize: 56, NumAttentionHeads: 4, NumQueryGroups: 2, KVChannels: 8,
		PaddedVocabSize: PadVocab(90, 128, 1), Position: PositionRope, Normalization: RMSNorm, Activation: Swiglu}
	if got := llama.Parameters(); got != 25248 {
		t.Errorf("llama: %d, want 25248", got)
	}
}

// Claim: for a dense GPT with 4h-wide MLPs the count is that of Narayanan et al.
// 2021 without recomputation and with the causal half of attention only:
// 72*B*s*L*h^2*(1 + s/(12h) + V/(12Lh)).
func TestFLOPsAgainstNarayanan(t *testing.T) {
	m, _ := Preset("gpt3-175b")
	b, s, l, h, v := 1536.0, 2048.0, 96.0, 12288.0, float64(m.PaddedVocabSize)
	want := 72 * b * s * l * h * h * (1 + s/(12*h) + v/(12*l*h))
	if got := m.FLOPs(1536, 2048); math.Abs(got-want) > 1e-9*want {
		t.Errorf("FLOPs %g, want %g", got, want)
	}
}

func TestFLOPsOfExperts(t *testing.T) {
	m, _ := Preset("mixtral-8x7b")
	dense := m
	dense.Experts = nil
	extra := m.FLOPs(1, 128) - dense.FLOPs(1, 128) // the second expert of each token
	if want := 6.0 * 128 * 32 * 4096 * 14336 * 3; math.Abs(extra-want) > 1e-9*want {
		t.Errorf("the second expert costs %g, want %g", extra, want)
	}
}

// Claim: V = ceil(vocab/(div*tp))*div*tp (Megatron-LM, _vocab_size_with_padding).
func TestPadVocab(t *testing.T) {
	for _, c := range []struct{ size, div, tp, want int }{
		{50257, 128, 1, 50304}, {50257, 128, 8, 51200}, {131, 128, 1, 256}, {128, 128, 1, 128}, {97, 1, 1, 97}, {97, 1, 4, 100},
	} {
		if got := PadVocab(c.size, c.div, c.tp); got != c.want {
			t.Errorf("PadVocab(%d, %d, %d) = %d, want %d", c.size, c.div, c.tp, got, c.want)
		}
	}
}

func TestUnknownPreset(t *testing.T) {
	if _, err := Preset("gpt5"); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("error %v, code %d", err, exitcode.CodeOf(err))
	}
}

// Claim: the counts that a run of 4 experts, top 2, prints on each of two ranks (237,092,400), and
// that Qwen3-30B-A3B's model card gives (30.5B, 3.3B of them active).
func TestParametersOfExperts(t *testing.T) {
	for _, c := range []struct {
		name         string
		ranks        int
		rank, active int64
	}{
		{"moe-237m", 2, 237_092_400, 237_092_400},
		{"qwen3-30b-a3b", 1, 30_532_122_624, 3_353_032_704},
	} {
		m, err := Preset(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.RankParameters(c.ranks); c.rank != 0 && got != c.rank {
			t.Errorf("%s: %d parameters on one of %d ranks, want %d", c.name, got, c.ranks, c.rank)
		}
		if got := m.ActiveParameters(); c.active != 0 && got != c.active {
			t.Errorf("%s: %d parameters meet a token, want %d", c.name, got, c.active)
		}
	}
}
