package checkpoint

import (
	"strings"

	"monotron/megatron/spec"
	"monotron/mpu"
)

// ZeroBiases shows a model of LayerNorm without biases in its linear layers as
// one whose biases are zeros, which computes the same; other models as they are.
func ZeroBiases(src Source) (out Source, added bool) {
	m := src.Info().Model
	if m == nil || m.LinearBias && m.QKVBias || m.Normalization != spec.LayerNorm || m.Experts != nil {
		return src, false
	}
	biased := *m
	biased.LinearBias, biased.QKVBias = true, true
	b := &zeroBiases{Source: src, model: &biased, zero: map[string]bool{}}
	b.list = append(b.list, src.Tensors()...)
	have := map[string]Tensor{}
	for _, t := range b.list {
		have[t.Name] = t
	}
	for _, t := range Expected(&biased) {
		weight, is := strings.CutSuffix(t.Name, "bias")
		for _, prefix := range []string{Model, Main, ExpAvg, ExpSq} {
			like, known := have[prefix+weight+"weight"]
			if _, has := have[prefix+t.Name]; !is || !known || has {
				continue
			}
			b.zero[prefix+t.Name] = true
			b.list = append(b.list, Tensor{Name: prefix + t.Name, DType: like.DType, Shape: t.Shape})
		}
	}
	return b, true
}

type zeroBiases struct {
	Source
	model *spec.Model
	list  []Tensor
	zero  map[string]bool
}

func (b *zeroBiases) Info() Info {
	info := b.Source.Info()
	info.Model = b.model
	return info
}

func (b *zeroBiases) Tensors() []Tensor { return b.list }

func (b *zeroBiases) Read(name string, box mpu.Piece, dst []byte) error {
	if b.zero[name] {
		clear(dst)
		return nil
	}
	return b.Source.Read(name, box, dst)
}
