package gguf

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// tensor is one of a GGUF file and the pieces of Hugging Face's that it is made of.
type tensor struct {
	name   string
	shape  []int64 // row-major, as everywhere but in the file
	pieces []piece
	rows   int64                    // of all pieces
	width  int64                    // elements of a row
	full   bool                     // always F32
	form   func(rows int64) []int64 // the shape, where the family says it; nil: by its pieces
	order                           // of rows and columns within each piece
	// What a value becomes in the file, and back; nil: itself.
	encode, decode func(x float32) float32
}

// order is where rows and columns of a file come from, if not from the same row or column.
type order struct {
	row, back          func(row int64) int64 // the source's row that a row of the file is, and the other way round
	unit               int64                 // rows move within groups of unit; 0: 1
	column, columnBack func(column int64) int64
}

// part is what a tensor of Hugging Face's gives to one of GGUF's: rows of itself, or turned.
type part struct {
	name        string // of GGUF's
	rows, width int64  // in the file
	stacked     bool   // the tensor has a dimension more, of such parts
	first       int64  // its first row in the tensor; -1: after the part before
	at, step    int64  // the source's row of the first row, and how far the next one is
	turned      bool   // rows of the file are columns of the source, from column at; its rows from `from` are the columns
	from        int64
	// Rows that are those of our own tensor, from `ours` on, are read from it: turned experts once, not row by row.
	own  bool
	ours int64
}

// piece is a part of a source.
type piece struct {
	part
	source      string
	sourceWidth int64 // elements of a row of the source
}

// plain reports that rows lie together on both sides.
func (p *piece) plain() bool { return !p.turned && p.step == 1 }

// correspondence is all tensors of a model, and where each of Hugging Face's is.
type correspondence struct {
	family  *family
	mapping *hf.Mapping
	list    []tensor
	where   map[string]location // by Hugging Face's name
}

// location is which tensors have a source.
type location struct {
	shape  []int64
	pieces [][2]int // numbers of tensors and of their pieces
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
	c := &correspondence{family: f, mapping: mapping, where: map[string]location{}}
	at := map[string]int{}
	for _, src := range mapping.Sources() {
		parts, err := f.parts(m, src)
		if err != nil {
			return nil, err
		}
		where := location{shape: slices.Clone(src.Shape)}
		for _, p := range parts {
			i, there := at[p.name]
			if !there {
				i = len(c.list)
				at[p.name] = i
				c.list = append(c.list, newTensor(m, f, &p))
			}
			where.pieces = append(where.pieces, [2]int{i, len(c.list[i].pieces)})
			c.list[i].add(p, src)
		}
		c.where[src.Name] = where
	}
	return c, nil
}

// parts are what a source gives: itself to one tensor, or to several what the family says.
func (f *family) parts(m *spec.Model, src hf.Source) ([]part, error) {
	if f.split != nil {
		if list, ok := f.split(m, src); ok {
			return list, nil
		}
	}
	name, stacked, err := f.translate(src.Name)
	if err != nil {
		return nil, err
	}
	return []part{{name: name, rows: src.Shape[0], width: volume(src.Shape[1:]), stacked: stacked, first: -1, step: 1}}, nil
}

func volume(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

var (
	numbers = regexp.MustCompile(`\.\d+\.`)
	slab    = regexp.MustCompile(`\[\d+\]$`)
)

// translate gives GGUF's name of a tensor; stacked reports one of several experts.
func (f *family) translate(name string) (translated string, stacked bool, err error) {
	const bias = "e_score_correction_bias"
	layer, count := "", 0
	stem := numbers.ReplaceAllStringFunc(slab.ReplaceAllString(name, ""), func(number string) string {
		if count++; count == 1 {
			layer = strings.Trim(number, ".")
			return ".N."
		}
		return ".E."
	})
	stacked = count > 1 || slab.MatchString(name)
	// A name of its own, or a module's with the suffix that it has.
	own, ok := f.module(stem)
	if !ok {
		module, suffix := stem, ""
		switch cut := strings.LastIndexByte(stem, '.'); {
		case strings.HasSuffix(stem, bias):
			module, suffix = strings.TrimSuffix(stem, "_bias"), ".bias"
		case cut >= 0:
			module, suffix = stem[:cut], stem[cut:]
		}
		if own, ok = f.module(module); !ok {
			return "", false, exitcode.Errorf(exitcode.Usage, "tensor %q of %s models has no name in GGUF", name, f.hf)
		}
		own += suffix
	}
	return strings.Replace(own, ".N.", "."+layer+".", 1), stacked, nil
}

// layerOf is the first number of a name.
func layerOf(name string) string { return strings.Trim(numbers.FindString(name), ".") }

// alwaysFull are weights that llama.cpp requires in F32, in addition to norms and vectors.
var alwaysFull = []string{"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight", "ssm_conv1d.weight", "conv.weight"}

// newTensor makes the tensor of a first part.
func newTensor(m *spec.Model, f *family, p *part) tensor {
	t := tensor{name: p.name, width: p.width}
	last := p.name[strings.LastIndexByte(strings.TrimSuffix(strings.TrimSuffix(p.name, ".weight"), ".bias"), '.')+1:]
	t.full = p.width == 1 && !p.stacked || strings.HasSuffix(p.name, "_norm.weight") || slices.Contains(alwaysFull, last) || !strings.HasSuffix(p.name, ".weight")
	if f.plusOne && strings.HasSuffix(p.name, "norm.weight") && last != "ssm_norm.weight" {
		t.encode, t.decode = func(x float32) float32 { return x + 1 }, func(x float32) float32 { return x - 1 }
	}
	if last == "ssm_a" {
		t.encode, t.decode = decay, decayLog
	}
	if f.shape != nil {
		t.form = func(rows int64) []int64 { return f.shape(m, last, rows) }
	}
	head := int64(m.KVChannels)
	name, _, _ := strings.Cut(last, ".")
	switch {
	case f.permute && (name == "attn_q" || name == "attn_k"):
		t.order = order{row: paired(head), back: unpaired(head), unit: head}
	case f.fused && name == "attn_qkv":
		t.order = order{row: apart(head, p.rows), back: together(head, p.rows), unit: p.rows}
	case f.order != nil:
		t.order = f.order(m, name, p.rows)
	}
	return t
}

// decay is what Qwen's A_log becomes, as the file has it.
func decay(x float32) float32 { return float32(-math.Exp(float64(x))) }

func decayLog(x float32) float32 { return float32(math.Log(float64(-x))) }

// add is a further part of a source.
func (t *tensor) add(p part, src hf.Source) {
	if p.first < 0 {
		p.first = t.rows
	}
	t.rows = max(t.rows, p.first+p.rows)
	t.pieces = append(t.pieces, piece{part: p, source: src.Name, sourceWidth: volume(src.Shape[1:])})
	t.shape = []int64{t.rows}
	if p.stacked {
		t.shape = []int64{t.rows / p.rows, p.rows}
	}
	if t.width > 1 || len(src.Shape) > 1 {
		t.shape = append(t.shape, t.width)
	}
	if t.form != nil {
		if shape := t.form(t.rows); shape != nil {
			t.shape = shape
		}
	}
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

// tiled: in the file the heads of all groups take turns; in Hugging Face's tensor those of a
// group lie together. Rows before `before` stay.
func tiled(groups, each, head, before int64) func(int64) int64 {
	return func(row int64) int64 {
		if row < before {
			return row
		}
		h, at := (row-before)/head, (row-before)%head
		return before + (h%groups*each+h/groups)*head + at
	}
}

// stored is the type of a tensor in a file of a type: what does not fill blocks is F16.
func (t *tensor) stored(kind gguf.Type) gguf.Type {
	switch {
	case t.full:
		return gguf.F32
	case t.dims()[0]%kind.BlockElements() != 0:
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

// group is so many rows that are made together.
func (t *tensor) group() int64 {
	n := max(1, t.unit)
	for i := range t.pieces {
		if !t.pieces[i].plain() {
			n = t.pieces[i].rows
		}
	}
	return n
}

// expertOf is the number of a slab, name[j].
func expertOf(name string) (stem string, j int) {
	at := slab.FindStringIndex(name)
	if at == nil {
		return name, -1
	}
	j, _ = strconv.Atoi(name[at[0]+1 : len(name)-1])
	return name[:at[0]], j
}

// in names a tensor of the layer of a source's name.
func in(source, form string) string { return fmt.Sprintf("blk.%s.%s", layerOf(source), form) }
