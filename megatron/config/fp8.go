package config

import (
	"errors"
	"fmt"

	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// FP8 is how operands of linear layers' products are rounded to 8 bits: see mpu.FP8.
type FP8 struct {
	Format, Recipe string // FP8E4M3, FP8Hybrid, ""; a key of FP8Recipes
	Delayed        FP8Delayed
	FirstLastBF16  bool // the first AtStart and the last AtEnd layers keep theirs
	AtStart, AtEnd int
}

// FP8Delayed is how scales follow from earlier steps: see mpu.Delayed.
type FP8Delayed struct {
	Length  int    // of a history
	Algo    string // AmaxLatest, AmaxLargest
	Margin  int
	NoWGrad bool // operands of the products of weights' gradients are not rounded
}

// Values of FP8Delayed.Algo: which magnitude of a history counts.
const (
	AmaxLatest  = "most_recent"
	AmaxLargest = "max"
)

// Formats of FP8.
const (
	FP8E4M3   = "e4m3"
	FP8Hybrid = "hybrid" // gradients in E5M2
)

// FP8Recipes are the names of recipes for --fp8-recipe.
var FP8Recipes = map[string]mpu.FP8Recipe{"blockwise": mpu.FP8Blockwise, "mxfp8": mpu.FP8MX, "tensorwise": mpu.FP8Tensorwise, "delayed": mpu.FP8Delayed}

// Keeps reports whether a layer of so many keeps its operands.
func (f *FP8) Keeps(layer, layers int) bool {
	return f.FirstLastBF16 && (layer < f.AtStart || layer >= layers-f.AtEnd)
}

// ErrFP8Cut is in the chain of CheckFP8's error.
var ErrFP8Cut = errors.New("--fp8-format: the layout splits")

// CheckFP8 refuses a layout in which a rank has parts of blocks, or of a query group, with the nearest legal number
// of ranks.
func (c *Step) CheckFP8() error {
	if c.FP8.Format == "" {
		return nil
	}
	m, l, block := &c.Model, &c.Layout, FP8Recipes[c.FP8.Recipe].Block()
	// The values of a block have one scale, so no rank may have a part of one: of the channels that tensor-parallel
	// ranks cut, and of the two chunks of positions of each context-parallel rank. Down projections of latent
	// attention sum over the positions of a sequence-parallel rank.
	channels := func(tp int) bool {
		for _, size := range fp8Channels(m) {
			if size%(tp*block) != 0 {
				return false
			}
		}
		if m.Mamba != nil && tp > m.Mamba.Groups { // ranks would have parts of the gradients of B and C
			return false
		}
		return tp <= m.NumQueryGroups // else ranks have parts of the gradients of keys and values
	}
	rows := func(tp int) bool {
		return channels(tp) && (m.Latent == nil || !l.SequenceParallel || c.SeqLength%(max(1, l.CP)*tp*block) == 0)
	}
	tokens := func(cp int) bool { return c.SeqLength%(2*cp*block) == 0 }
	// Name the next lower number of ranks that fits.
	for _, cut := range []struct {
		flag, what string
		ranks      int
		fits       func(int) bool
	}{{"tensor-model-parallel-size", "channels", l.TP, channels}, {"tensor-model-parallel-size", "tokens", l.TP, rows}, {"context-parallel-size", "tokens", l.CP, tokens}} {
		if cut.ranks <= 1 || cut.fits(cut.ranks) {
			continue
		}
		legal := cut.ranks - 1
		for legal > 1 && !cut.fits(legal) {
			legal--
		}
		parts := fmt.Sprintf("blocks of %d %s", block, cut.what)
		if block == 1 || cut.what == "channels" && (cut.ranks > m.NumQueryGroups || m.Mamba != nil && cut.ranks > m.Mamba.Groups) {
			parts = "groups of heads"
		}
		return exitcode.With(exitcode.Usage, fmt.Errorf("%w %s; use --%s %d", ErrFP8Cut, parts, cut.flag, legal))
	}
	return nil
}

// fp8Channels are the sizes of the axes of weights that tensor-parallel ranks cut.
func fp8Channels(m *spec.Model) []int {
	sizes := []int{m.FFNHiddenSize}
	if l := m.Latent; l != nil {
		sizes = append(sizes, m.NumAttentionHeads*l.HeadDim(), m.NumAttentionHeads*(l.QKDim+l.VDim), m.NumAttentionHeads*l.VDim)
	} else {
		sizes = append(sizes, m.QKVRows(), m.NumAttentionHeads*m.KVChannels)
	}
	if s := m.Mamba; s != nil {
		parts := s.Parts()
		sizes = append(sizes, parts[:]...)
	}
	if m.MTP != nil {
		sizes = append(sizes, m.HiddenSize)
	}
	return sizes
}
