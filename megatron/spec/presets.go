package spec

import (
	"slices"
	"sort"
	"strings"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// presets are well-known shapes by name. Vocabularies are padded to a multiple
// of 128, as the command line does by default for one rank.
var presets = map[string]func() Model{
	"gpt2-124m": func() Model { return gpt2(12, 768, 12) },
	"gpt2-350m": func() Model { return gpt2(24, 1024, 16) },
	"gpt2-774m": func() Model { return gpt2(36, 1280, 20) },
	"gpt2-1.5b": func() Model { return gpt2(48, 1600, 25) },
	"gpt3-175b": func() Model {
		m := gpt2(96, 12288, 96)
		m.MaxPositions, m.Context = 2048, 2048
		return m
	},
	"shakespeare-char": func() Model {
		m := gpt2(4, 128, 4)
		m.MaxPositions, m.Context = 64, 64
		m.HiddenDropout, m.AttentionDropout = 0, 0
		return m.vocab(65)
	},
	"shakespeare-char-11m": func() Model {
		m := gpt2(6, 384, 6)
		m.MaxPositions, m.Context = 256, 256
		m.HiddenDropout, m.AttentionDropout = 0.2, 0.2
		return m.vocab(65)
	},
	"llama-15m":  func() Model { return llama(6, 288, 768, 6, 6, 256).tied() },
	"llama-42m":  func() Model { return llama(8, 512, 1376, 8, 8, 1024).tied() },
	"llama-110m": func() Model { return llama(12, 768, 2048, 12, 12, 1024).tied() },
	"llama-300m": func() Model { return llama(20, 1024, 2816, 16, 16, 2048).tied() },
	"llama2-7b":  func() Model { return llama(32, 4096, 11008, 32, 32, 4096) },
	"llama2-13b": func() Model { return llama(40, 5120, 13824, 40, 40, 4096) },
	"llama2-70b": func() Model { return llama(80, 8192, 28672, 64, 8, 4096) },
	"llama3-8b":  func() Model { return llama(32, 4096, 14336, 32, 8, 8192).base(500000).vocab(128256) },
	"llama3-70b": func() Model { return llama(80, 8192, 28672, 64, 8, 8192).base(500000).vocab(128256) },
	"mistral-7b": func() Model { return llama(32, 4096, 14336, 32, 8, 32768) },
	"qwen2-0.5b": func() Model { return qwen2(24, 896, 4864, 14, 2).tied() },
	"qwen2-7b":   func() Model { return qwen2(28, 3584, 18944, 28, 4).vocab(152064) },
	"bloom-560m": func() Model { return bloom(24, 1024, 16) },
	"bloom-176b": func() Model { return bloom(70, 14336, 112) },
	"mixtral-8x7b": func() Model {
		m := llama(32, 4096, 14336, 32, 8, 32768).base(1e6)
		return m.mixture(8, 2, 14336, 0.02)
	},
	"qwen3-30b-a3b": func() Model {
		m := llama(48, 2048, 6144, 32, 4, 40960).base(1e6).vocab(151936)
		m.KVChannels, m.QKNorm, m.NormEpsilon = 128, true, 1e-6
		return m.mixture(128, 8, 768, 0.001)
	},
	// A rank of two holds 237,092,400 parameters of it, two of the four experts of each layer;
	// a token meets as many.
	"moe-237m": func() Model {
		m := gpt2(12, 768, 12)
		m.Position, m.MaxPositions, m.Activation = PositionRope, 0, Swiglu
		m.HiddenDropout, m.AttentionDropout = 0, 0
		m.VocabSize = m.PaddedVocabSize
		return m.mixture(4, 2, 3072, 0.01)
	},
}

// Preset is the shape called name, with or without hyphens (llama-3-8b, llama3-8b); an unknown
// name is a usage error that lists the known ones.
func Preset(name string) (Model, error) {
	plain := strings.NewReplacer("-", "", "_", "").Replace
	build, ok := presets[strings.ToLower(name)]
	for known, other := range presets {
		if !ok && plain(known) == plain(strings.ToLower(name)) {
			build, ok = other, true
		}
	}
	if !ok {
		return Model{}, exitcode.Errorf(exitcode.Usage, "unknown model preset %q; %schoose from %s", name, nearest(name), strings.Join(PresetNames(), ", "))
	}
	return build(), nil
}

// nearest asks for the presets whose names are like a wrong one; "": none is.
func nearest(name string) string {
	set := argv.Set{}
	for known := range presets {
		set[known] = argv.One
	}
	if near := argv.Nearest(set, strings.ToLower(name)); len(near) > 0 {
		return "did you mean " + argv.Or(near...) + "? "
	}
	return ""
}

// PresetNames lists the presets in alphabetical order.
func PresetNames() []string {
	names := make([]string, 0, len(presets))
	for name := range presets {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func gpt2(layers, hidden, heads int) Model {
	m := Model{
		NumLayers: layers, HiddenSize: hidden, FFNHiddenSize: 4 * hidden,
		NumAttentionHeads: heads, NumQueryGroups: heads, KVChannels: hidden / heads,
		MaxPositions: 1024, Context: 1024, Position: PositionLearned, RotaryBase: 10000, RotaryPercent: 1,
		Normalization: LayerNorm, NormEpsilon: 1e-5, Activation: GeluTanh,
		LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1,
		HiddenDropout: 0.1, AttentionDropout: 0.1, InitStd: 0.02, EmbeddingInitStd: 0.02,
	}
	return m.vocab(50257)
}

func llama(layers, hidden, ffn, heads, groups, context int) Model {
	m := Model{
		NumLayers: layers, HiddenSize: hidden, FFNHiddenSize: ffn,
		NumAttentionHeads: heads, NumQueryGroups: groups, KVChannels: hidden / heads,
		Context: context, Position: PositionRope, RotaryBase: 10000, RotaryPercent: 1,
		Normalization: RMSNorm, NormEpsilon: 1e-5, Activation: Swiglu,
		WindowLeft: -1, InitStd: 0.02, EmbeddingInitStd: 0.02,
	}
	return m.vocab(32000)
}

func qwen2(layers, hidden, ffn, heads, groups int) Model {
	m := llama(layers, hidden, ffn, heads, groups, 32768).base(1e6)
	m.QKVBias, m.NormEpsilon = true, 1e-6
	return m.vocab(151936)
}

func bloom(layers, hidden, heads int) Model {
	m := gpt2(layers, hidden, heads)
	m.Position, m.MaxPositions, m.Context, m.EmbedNorm = PositionAlibi, 0, 2048, true
	m.HiddenDropout, m.AttentionDropout = 0, 0
	return m.vocab(250880)
}

// mixture makes every layer one of experts, balanced by aux_loss.
func (m Model) mixture(experts, topk, ffn int, coefficient float64) Model {
	m.Experts = &Experts{Num: experts, TopK: topk, FFNHiddenSize: ffn, ScoreFunction: ScoreSoftmax, Layers: slices.Repeat([]bool{true}, m.NumLayers),
		Balancing: []string{AuxLoss}, AuxLossCoeff: []float64{coefficient}, Dispatcher: AllToAllDispatcher, DropPolicy: DropByWeight}
	return m
}

func (m Model) vocab(size int) Model {
	m.VocabSize, m.PaddedVocabSize = size, PadVocab(size, 128, 1)
	return m
}

func (m Model) base(b float64) Model { m.RotaryBase = b; return m }
func (m Model) tied() Model          { m.Tied = true; return m }
