package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Sublayers is which of its two sublayers a layer has.
type Sublayers int

// A mixer is attention or what replaces it; an MLP may be a mixture of experts.
const (
	BothSublayers Sublayers = iota
	MixerAlone
	MLPAlone
)

func (s Sublayers) String() string { return [...]string{"both", "mixer", "MLP"}[s] }

// Symbols of Megatron's --hybrid-layer-pattern, in which every layer has one sublayer.
const (
	scanSymbol      = 'M'
	attentionSymbol = '*'
	mlpSymbol       = '-'
	expertsSymbol   = 'E'
)

// MixerAt reports whether layer (0-based, global) has a mixer.
func (m *Model) MixerAt(layer int) bool { return m.sublayersAt(layer) != MLPAlone }

// MLPAt reports whether layer (0-based, global) has an MLP or a mixture of experts.
func (m *Model) MLPAt(layer int) bool { return m.sublayersAt(layer) != MixerAlone }

func (m *Model) sublayersAt(layer int) Sublayers {
	if m.Sublayers == nil {
		return BothSublayers
	}
	return m.Sublayers[m.decoderLayer(layer)]
}

// LayerKind is what a layer computes: layers of one kind cost the same.
type LayerKind struct {
	Mixer, Delta, Conv, Scan, MLP, Mixture bool
	Window, Chunk                          int // see WindowAt and ChunkAt
}

// KindAt is the kind of a layer (0-based, global).
func (m *Model) KindAt(layer int) LayerKind {
	return LayerKind{m.MixerAt(layer), m.DeltaAt(layer), m.ConvAt(layer), m.MambaAt(layer), m.MLPAt(layer), m.MixtureAt(layer), m.WindowAt(layer), m.ChunkAt(layer)}
}

// WithLayers is the model of such layers of m (0-based), in this order; one may be in it several times.
func (m *Model) WithLayers(layers []int) Model {
	of := *m
	of.NumLayers = len(layers)
	of.NoRope, of.Windowed, of.Sublayers = picked(m.NoRope, layers), picked(m.Windowed, layers), picked(m.Sublayers, layers)
	if m.Delta != nil {
		of.Delta = new(*m.Delta)
		of.Delta.Layers = picked(m.Delta.Layers, layers)
	}
	if m.Conv != nil {
		of.Conv = new(*m.Conv)
		of.Conv.Layers = picked(m.Conv.Layers, layers)
	}
	if m.Mamba != nil {
		of.Mamba = new(*m.Mamba)
		of.Mamba.Layers = picked(m.Mamba.Layers, layers)
	}
	if m.Experts != nil {
		of.Experts = new(*m.Experts)
		of.Experts.Layers = picked(m.Experts.Layers, layers)
	}
	return of
}

// picked is a setting of such layers; nil stays.
func picked[T any](of []T, layers []int) (list []T) {
	if len(of) == 0 {
		return nil
	}
	for _, layer := range layers {
		list = append(list, of[layer])
	}
	return list
}

// HybridLayers are layers with one sublayer each, [layer].
type HybridLayers struct {
	Sublayers      []Sublayers
	Scans, Experts []bool // which are state-space scans, and mixtures of experts
}

// ParseHybrid reads a layer for each symbol.
func ParseHybrid(pattern string) (h HybridLayers, err error) {
	unheld := map[rune]string{'G': "gated delta nets", 'D': "sparse attention", '+': "multi-latent attention", '/': "multi-token prediction"}
	for _, symbol := range pattern {
		kind := MixerAlone
		switch symbol {
		case scanSymbol, attentionSymbol:
		case mlpSymbol, expertsSymbol:
			kind = MLPAlone
		default:
			if what := unheld[symbol]; what != "" {
				return h, fmt.Errorf("%c stands for %s, which monotron does not support in models with layers of one sublayer", symbol, what)
			}
			return h, fmt.Errorf("%q is not a layer; use M (scan), * (attention), - (MLP) or E (experts)", symbol)
		}
		h.Sublayers, h.Scans, h.Experts = append(h.Sublayers, kind), append(h.Scans, symbol == scanSymbol), append(h.Experts, symbol == expertsSymbol)
	}
	if len(h.Sublayers) == 0 {
		return h, fmt.Errorf("the pattern names no layers; use M (scan), * (attention), - (MLP) or E (experts)")
	}
	return h, nil
}

// Hybrid is what ParseHybrid reads m's layers from; "": they have both sublayers.
func (m *Model) Hybrid() string {
	var b strings.Builder
	for i := range m.Sublayers {
		switch k := m.KindAt(i); {
		case k.Scan:
			b.WriteByte(scanSymbol)
		case k.Mixer:
			b.WriteByte(attentionSymbol)
		case k.Mixture:
			b.WriteByte(expertsSymbol)
		default:
			b.WriteByte(mlpSymbol)
		}
	}
	return b.String()
}

// LacksSublayers says what a model whose layers have one sublayer cannot have; "": it has none of it.
func (m *Model) LacksSublayers() string {
	if !slices.ContainsFunc(m.Sublayers, func(s Sublayers) bool { return s != BothSublayers }) {
		return ""
	}
	for _, part := range []struct {
		has  bool
		flag string
	}{
		{m.ParallelResidual, "parallel-residual"}, {m.NormBehindSum, "norm-behind-sum"}, {m.KVShared > 0, "kv-shared-layers"}, {m.PerLayerInput > 0, "per-layer-input-size"},
		{m.ParallelMLP, "moe-parallel-mlp"}, {m.MTP != nil, "mtp-num-layers"}, {m.Latent != nil, "multi-latent-attention"},
		{m.Delta != nil, "experimental-attention-variant"}, {m.Conv != nil, "short-conv-freq"},
	} {
		if part.has {
			return part.flag
		}
	}
	return ""
}
