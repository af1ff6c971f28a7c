package checkpoint

import (
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// NormWeights shows a model whose norms multiply by weight+1 (--apply-layernorm-1p) as one whose norms
// multiply by the weight, or the other way round with onePlus: 1 is added to the weights of its norms, or
// subtracted. The sum is rounded as a kernel rounds it, so that the plain model computes the same. A model
// that has such norms already is shown as it is.
func NormWeights(src Source, onePlus bool) (out Source, changed bool) {
	m := src.Info().Model
	if m == nil || m.NormOnePlus == onePlus {
		return src, false
	}
	other := *m
	other.NormOnePlus = onePlus
	n := &normWeights{Source: src, model: &other, add: 1, types: map[string]string{}}
	if onePlus {
		n.add = -1
	}
	for _, t := range src.Tensors() {
		name, weight := strings.CutPrefix(t.Name, Model)
		if !weight {
			name, weight = strings.CutPrefix(t.Name, Main)
		}
		if weight && IsNormWeight(name) {
			n.types[t.Name] = t.DType
		}
	}
	return n, true
}

// PlainNormsNote is for a person, of a checkpoint that is written with the weights of NormWeights.
const PlainNormsNote = "the weights of norms are written with 1 added (--apply-layernorm-1p), because norms in this format do not add 1; in f32 the result is the same, but in bf16 and fp16 the sums are rounded"

// IsNormWeight reports, without prefix, a weight that --apply-layernorm-1p makes weight+1. The norms of
// linear attention and of state-space scans have plain weights with that flag too.
func IsNormWeight(name string) bool {
	return strings.HasSuffix(name, "layernorm.weight") || strings.HasSuffix(name, ".enorm.weight") || strings.HasSuffix(name, ".hnorm.weight")
}

type normWeights struct {
	Source
	model *spec.Model
	add   float64
	types map[string]string // of the weights of norms
}

func (n *normWeights) Info() Info {
	info := n.Source.Info()
	info.Model = n.model
	return info
}

func (n *normWeights) Read(name string, box mpu.Piece, dst []byte) error {
	if err := n.Source.Read(name, box, dst); err != nil {
		return err
	}
	dtype, is := n.types[name]
	if !is {
		return nil
	}
	values := make([]float64, int64(len(dst))/Width(dtype))
	if !safetensors.Decode(values, dtype, dst) {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s: weights of norms cannot have the type %s; report this, and include the command line", name, dtype)
	}
	for i := range values {
		values[i] += n.add
	}
	_, _ = safetensors.Encode(dst[:0], dtype, values) // Decode knows the type
	return nil
}
