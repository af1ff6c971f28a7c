package gguf

import (
	"regexp"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// tensor is one of a GGUF file and what of Hugging Face's it is made of.
type tensor struct {
	name    string
	shape   []int64  // row-major, as everywhere but in the file
	sources []string // one, or all experts one behind the other
	height  int64    // rows of a source
	width   int64    // elements of a row
	full    bool     // always F32
	plusOne bool     // stored as weight+1
	// row is the source's row that a row of the file is, both within one source; nil: the
	// same one. Rows move within groups of unit.
	row  func(row int64) int64
	back func(row int64) int64 // the other way round
	unit int64
}

// correspondence is all tensors of a model, and where each of Hugging Face's is.
type correspondence struct {
	family  *family
	mapping *hf.Mapping
	list    []tensor
	where   map[string]place // by Hugging Face's name
}

// place is where a source lies.
type place struct {
	tensor int
	first  int64 // row in the tensor
	shape  []int64
}

// newCorrespondence lists the tensors of a model of a family.
func newCorrespondence(m *spec.Model, f *family) (*correspondence, error) {
	mapping, err := hf.NewMapping(m, f.hf)
	if err == nil && f.linear {
		mapping, err = hf.NewLinearMapping(m)
	}
	if err != nil {
		return nil, err
	}
	c := &correspondence{family: f, mapping: mapping, where: map[string]place{}}
	at := map[string]int{}
	// A tensor of GGUF is one of Hugging Face's, or all experts' of one kind, one after another.
	for _, src := range mapping.Sources() {
		name, expert, err := f.translate(src.Name)
		if err != nil {
			return nil, err
		}
		i, there := at[name]
		if !there {
			i = len(c.list)
			at[name] = i
			c.list = append(c.list, newTensor(m, f, name, src.Shape))
		}
		t := &c.list[i]
		t.sources = append(t.sources, src.Name)
		if expert {
			t.shape = append([]int64{int64(len(t.sources))}, src.Shape...)
		}
		c.where[src.Name] = place{i, int64(len(t.sources)-1) * t.height, slices.Clone(src.Shape)}
	}
	return c, nil
}

var numbers = regexp.MustCompile(`\.\d+\.`)

// translate gives GGUF's name of a tensor; expert tells one that is stacked with others.
func (f *family) translate(name string) (translated string, expert bool, err error) {
	const bias = "e_score_correction_bias"
	module, suffix := name, ""
	switch cut := strings.LastIndexByte(name, '.'); {
	case strings.HasSuffix(name, bias):
		module, suffix = strings.TrimSuffix(name, "_bias"), ".bias"
	case cut >= 0:
		module, suffix = name[:cut], name[cut:]
	}
	layer, count := "", 0
	module = numbers.ReplaceAllStringFunc(module, func(number string) string {
		if count++; count == 1 {
			layer = strings.Trim(number, ".")
			return ".N."
		}
		return ".E."
	})
	own, ok := f.module(module)
	if !ok {
		return "", false, exitcode.Errorf(exitcode.Usage, "tensor %q of %s models has no name in GGUF", name, f.hf)
	}
	return strings.Replace(own, ".N.", "."+layer+".", 1) + suffix, count > 1, nil
}

// alwaysFull are weights that llama.cpp wants in F32, besides norms and vectors.
var alwaysFull = []string{"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight"}

func newTensor(m *spec.Model, f *family, name string, shape []int64) tensor {
	t := tensor{name: name, shape: slices.Clone(shape), height: shape[0], width: 1, unit: 1}
	if len(shape) == 2 {
		t.width = shape[1]
	}
	last := name[strings.LastIndexByte(strings.TrimSuffix(strings.TrimSuffix(name, ".weight"), ".bias"), '.')+1:]
	t.full = len(shape) < 2 || strings.HasSuffix(name, "_norm.weight") || slices.Contains(alwaysFull, last)
	t.plusOne = f.plusOne && strings.HasSuffix(name, "norm.weight")
	head := int64(m.KVChannels)
	switch part, _, _ := strings.Cut(last, "."); {
	case f.permute && (part == "attn_q" || part == "attn_k"):
		t.unit, t.row, t.back = head, paired(head), unpaired(head)
	case f.fused && part == "attn_qkv":
		t.unit, t.row, t.back = t.height, apart(head, t.height), together(head, t.height)
	}
	return t
}

// paired: in the file the channels that rotate together are neighbours, in Hugging Face's
// tensors half a head apart.
func paired(head int64) func(int64) int64 {
	return func(row int64) int64 {
		h, at := row/head, row%head
		return h*head + at%2*(head/2) + at/2
	}
}

func unpaired(head int64) func(int64) int64 {
	return func(row int64) int64 {
		h, at := row/head, row%head
		return h*head + at%(head/2)*2 + at/(head/2)
	}
}

// apart: in the file all queries come first, then keys and values; in Hugging Face's
// tensor the three of each head lie together.
func apart(head, rows int64) func(int64) int64 {
	third := rows / 3
	return func(row int64) int64 {
		part, at := row/third, row%third
		return at/head*3*head + part*head + at%head
	}
}

func together(head, rows int64) func(int64) int64 {
	third := rows / 3
	return func(row int64) int64 { return row/head%3*third + row/(3*head)*head + row%head }
}

// stored is the type of a tensor in a file of a type: what does not fill blocks is F16.
func (t *tensor) stored(kind gguf.Type) gguf.Type {
	switch {
	case t.full:
		return gguf.F32
	case t.width%kind.BlockElements() != 0:
		return gguf.F16
	}
	return kind
}

// dims are the dimensions in ggml's order.
func (t *tensor) dims() []int64 {
	dims := slices.Clone(t.shape)
	slices.Reverse(dims)
	return dims
}
