package llmc

import (
	"fmt"

	"monotron/megatron/spec"
)

const (
	modelMagic = 20240326
	stateMagic = 20240527

	versionF32  = 3
	versionBF16 = 5

	headerInts  = 256
	headerBytes = 4 * headerInts

	// gelu is where our header says which GELU the weights were trained with;
	// llm.c leaves the field 0 and computes the tanh form.
	gelu    = 255
	geluErf = 1
)

// span is a tensor in the row of all parameters, in elements.
type span struct {
	shape     []int64
	at, width int64 // first element; elements that the file has, padding included
}

// layout gives every tensor, by GPT-2's name with weights [out, in], its position.
type layout struct {
	spans map[string]span
	order []string // as in the file
	total int64    // elements
	vp    int64    // rows of the word embedding
}

func newLayout(m *spec.Model) *layout {
	l := &layout{spans: map[string]span{}, vp: int64(spec.PadVocab(m.VocabSize, 128, 1))}
	v, c, layers := int64(m.VocabSize), int64(m.HiddenSize), m.NumLayers
	l.add("transformer.wte.weight", l.vp*c, v, c)
	l.add("transformer.wpe.weight", 0, int64(m.MaxPositions), c)
	for _, sort := range []struct {
		name  string
		shape []int64
	}{
		{"ln_1.weight", []int64{c}}, {"ln_1.bias", []int64{c}},
		{"attn.c_attn.weight", []int64{3 * c, c}}, {"attn.c_attn.bias", []int64{3 * c}},
		{"attn.c_proj.weight", []int64{c, c}}, {"attn.c_proj.bias", []int64{c}},
		{"ln_2.weight", []int64{c}}, {"ln_2.bias", []int64{c}},
		{"mlp.c_fc.weight", []int64{4 * c, c}}, {"mlp.c_fc.bias", []int64{4 * c}},
		{"mlp.c_proj.weight", []int64{c, 4 * c}}, {"mlp.c_proj.bias", []int64{c}},
	} {
		for i := range layers {
			l.add(fmt.Sprintf("transformer.h.%d.%s", i, sort.name), 0, sort.shape...)
		}
	}
	l.add("transformer.ln_f.weight", 0, c)
	l.add("transformer.ln_f.bias", 0, c)
	return l
}

// add appends a tensor; padded is its space where that is more than it needs.
func (l *layout) add(name string, padded int64, shape ...int64) {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	n = max(n, padded)
	l.spans[name] = span{shape: shape, at: l.total, width: n}
	l.order = append(l.order, name)
	l.total += n
}
