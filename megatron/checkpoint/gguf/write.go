package gguf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/tokenizer"
	"monotron/tokenizer/ggvocab"
)

// kinds are the types that are written, as --type spells them.
var kinds = map[string]gguf.Type{"f32": gguf.F32, "f16": gguf.F16, "bf16": gguf.BF16, "q8_0": gguf.Q8_0}

// Kinds lists them for help and messages.
var Kinds = []string{"f32", "f16", "bf16", "q8_0"}

// Write makes the GGUF file path: weights in o.Quantization's type, tokenizer and chat
// template included. Optimizer state is left out with a note.
func Write(ctx context.Context, path string, src checkpoint.Source, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	w := &writing{src: src, o: o}
	if err := w.plan(); err != nil {
		return checkpoint.Written{}, err
	}
	if err := w.tokenizer(); err != nil {
		return checkpoint.Written{}, err
	}
	done := checkpoint.Written{Path: path, Files: 1}
	err := checkpoint.Single(path, func() (err error) {
		done.Bytes, err = gguf.Write(ctx, path, w.metadata, w.outputs())
		return err
	})
	if err != nil {
		return checkpoint.Written{}, err
	}
	done.Notes = w.notes
	return done, nil
}

// writing is one file under way.
type writing struct {
	src      checkpoint.Source
	o        checkpoint.WriteOptions
	kind     gguf.Type
	c        *correspondence
	dtypes   map[string]string // of the source's, by Hugging Face's name
	config   map[string]any
	fours    bool      // experts stay MXFP4
	rope     []float32 // factors of Llama 3's scaling; nil: none
	metadata []gguf.Pair
	notes    []string
}

// plan decides what is written, and checks that the model can be.
func (w *writing) plan() error {
	info := w.src.Info()
	// The family, the type of the weights, the tensors.
	name, err := hf.ChooseFamily(info, w.o)
	if err != nil {
		return err
	}
	f, err := familyOf(name, info.Model)
	if err != nil {
		return err
	}
	if w.kind, err = w.chooseKind(); err != nil {
		return err
	}
	if w.c, err = newCorrespondence(info.Model, f); err != nil {
		return err
	}
	w.fours = w.o.Quantization == "" && f.hf == hf.GPTOSS && info.Quantization == hf.MXFP4
	infos, notes, err := hf.Plan(w.src, w.c.mapping)
	if err != nil {
		return err
	}
	// The type that each tensor is stored in now.
	w.dtypes = map[string]string{}
	for _, t := range infos {
		w.dtypes[t.Name] = t.DType
	}
	// Metadata.
	d := &describing{f: f, m: info.Model, notes: notes}
	if d.config, d.own, err = hf.Settings(info, name); err != nil {
		return err
	}
	kind := w.kind
	if w.fours {
		kind = gguf.MXFP4
	}
	if err := d.describe(info.Path, kind); err != nil {
		return err
	}
	w.config, w.metadata, w.notes = d.config, d.out, d.notes
	if s := info.Model.RopeScaling; s != nil {
		w.rope = factors(s, info.Model.RotaryBase, info.Model.RotaryDims())
	}
	if f.hf == hf.Gemma4 {
		w.rope = gemma4Rope(info.Model)
	}
	return nil
}

// chooseKind is the asked type, or that of most of the source's tensors.
func (w *writing) chooseKind() (gguf.Type, error) {
	if w.o.Quantization != "" {
		kind, ok := kinds[w.o.Quantization]
		if !ok {
			return 0, exitcode.Errorf(exitcode.Usage, "the type of weights in GGUF must be %s, not %q", argv.Or(Kinds...), w.o.Quantization)
		}
		return kind, nil
	}
	for _, t := range w.src.Tensors() {
		if len(t.Shape) > 1 {
			switch t.DType {
			case "BF16":
				return gguf.BF16, nil
			case "F16":
				return gguf.F16, nil
			}
			break
		}
	}
	return gguf.F32, nil
}

// tokenizer adds the tokenizer's metadata. Without one the file says so.
func (w *writing) tokenizer() error {
	files, err := w.tokenizerFiles()
	if err != nil {
		return err
	}
	m := w.src.Info().Model
	if len(files) == 0 {
		from := "the checkpoint"
		if w.o.Tokenizer != "" {
			from = w.o.Tokenizer
		}
		w.notes = append(w.notes, from+" has no tokenizer that GGUF can store, so llama.cpp will accept only token ids; use --tokenizer to give a folder with a tokenizer")
		w.metadata = append(w.metadata, gguf.Pair{Key: "tokenizer.ggml.model", Value: "none"})
		return nil
	}
	if files, err = tokenizer.Complete(files); err != nil {
		return err
	}
	pairs, notes, err := ggvocab.Metadata(ggvocab.Options{Files: files, Size: m.VocabSize, Config: w.config, Pre: w.c.family.pre, Spaces: w.c.family.spaces, Model: w.c.family.words})
	if err != nil {
		return exitcode.Errorf(exitcode.CodeOf(err), "the tokenizer cannot be stored in GGUF: %w; use --tokenizer to give a folder with another tokenizer", err)
	}
	w.metadata = append(w.metadata, pairs...)
	w.notes = append(w.notes, notes...)
	return nil
}

// tokenizerFiles are the files of the tokenizer under Hugging Face's names: of the folder
// that is asked for or the source is, else of the tokenizer that the source names.
func (w *writing) tokenizerFiles() (list []ggvocab.File, err error) {
	dir := w.o.Tokenizer
	if info := w.src.Info(); dir == "" && info.Format == checkpoint.HF {
		dir = info.Path
	}
	// A folder's files under their own names.
	if dir != "" {
		for _, name := range tokenizer.HuggingFaceFiles {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			data, err := exitcode.ReadFile(path, 1<<29)
			if err != nil {
				return nil, err
			}
			list = append(list, ggvocab.File{Name: name, Data: data})
		}
		return list, nil
	}
	// What a checkpoint of ours remembers of its tokenizer.
	files, err := w.src.Info().Tokenizer.Files(true)
	if err != nil {
		w.notes = append(w.notes, checkpoint.NotKept(err))
		return nil, nil
	}
	for _, f := range files {
		if f.HF != "" {
			list = append(list, ggvocab.File{Name: f.HF, Data: f.Data})
		}
	}
	return list, nil
}

// outputs lists the tensors of the file.
func (w *writing) outputs() (list []gguf.Output) {
	if w.rope != nil {
		list = append(list, gguf.Output{Name: ropeFreqs, Dims: []int64{int64(len(w.rope))}, Type: gguf.F32,
			Fill: func(_, _ int64, dst []byte) error { gguf.Encode(dst, gguf.F32, w.rope); return nil }})
	}
	for i := range w.c.list {
		t := &w.c.list[i]
		kind := t.stored(w.kind)
		if w.fours && strings.HasSuffix(t.name, "_exps.weight") {
			kind = gguf.MXFP4
		}
		dims := t.dims()
		each := dims[0] / t.width // of our rows in one of the file
		list = append(list, gguf.Output{Name: t.name, Dims: dims, Type: kind, Unit: (t.group() + each - 1) / each,
			Fill: func(from, to int64, dst []byte) error { return w.fill(t, kind, from*each, to*each, dst) }})
	}
	return list
}

// fill writes the rows [from, to) of a tensor in a type.
func (w *writing) fill(t *tensor, kind gguf.Type, from, to int64, dst []byte) error {
	values := make([]float32, (to-from)*t.width)
	for i := range t.pieces {
		p := &t.pieces[i]
		low, high := max(from, p.first), min(to, p.first+p.rows)
		if low >= high {
			continue
		}
		part := values[(low-from)*t.width : (high-from)*t.width]
		if err := w.read(t, p, low-p.first, high-p.first, part); err != nil {
			return err
		}
	}
	if t.encode != nil {
		for i, x := range values {
			values[i] = t.encode(x)
		}
	}
	if kind == gguf.MXFP4 && !gguf.HoldsMXFP4(values) {
		return exitcode.Errorf(exitcode.Usage, "tensor %q: rows %d to %d have values that MXFP4 cannot represent, although the other experts are stored as MXFP4; give --type, as in --type bf16", t.name, from, to)
	}
	gguf.Encode(dst, kind, values)
	return nil
}

// read fills values with the file's rows [from, to) of p.
func (w *writing) read(t *tensor, p *piece, from, to int64, values []float32) error {
	if p.own {
		return w.ours(p, from, to, values)
	}
	unit := max(1, t.unit)
	low, high := from/unit*unit, (to+unit-1)/unit*unit
	// Which rows of the source, and where the elements of a row of the file are among theirs.
	first, end, across, down := p.at+low, p.at+high, int64(1), p.sourceWidth
	switch {
	case p.turned:
		first, end, across, down = p.from, p.from+p.width, p.sourceWidth, p.step
	case p.step > 1:
		first, end, down = p.at+low*p.step, p.at+(high-1)*p.step+1, p.step*p.sourceWidth
	}
	all, err := w.source(p.source, first, end, p.sourceWidth)
	if err != nil {
		return err
	}
	if p.turned {
		all = all[p.at+low*p.step:]
	}
	for row := from; row < to; row++ {
		at := row
		if t.row != nil {
			at = t.row(row)
		}
		out, in := values[(row-from)*t.width:][:t.width], all[(at-low)*down:]
		if across == 1 && t.column == nil {
			copy(out, in)
			continue
		}
		for i := range out {
			column := int64(i)
			if t.column != nil {
				column = t.column(column)
			}
			out[i] = in[column*across]
		}
	}
	return nil
}

// ours fills values with rows of our own tensor that a source is part of.
func (w *writing) ours(p *piece, from, to int64, values []float32) error {
	global, shape := w.c.mapping.GlobalOf(p.source)
	stem, _ := expertOf(p.source)
	dtype := w.dtypes[stem]
	raw, all := make([]byte, int64(len(values))*checkpoint.Width(dtype)), make([]byte, len(values)*4)
	corner, size := make([]int64, len(shape)), slices.Clone(shape)
	corner[0], size[0] = p.ours+from, to-from
	if err := hf.ReadFrom(w.src, checkpoint.Model)(global, corner, size, raw); err != nil {
		return err
	}
	if err := checkpoint.Convert(all, "F32", raw, dtype); err != nil {
		return fmt.Errorf("tensor %q: %w", p.source, err)
	}
	gguf.Decode(values, gguf.F32, all)
	return nil
}

// source reads rows of a tensor of Hugging Face's.
func (w *writing) source(name string, first, end, width int64) ([]float32, error) {
	stem, _ := expertOf(name)
	dtype := w.dtypes[stem]
	raw := make([]byte, (end-first)*width*checkpoint.Width(dtype))
	if err := w.c.mapping.ScatterRows(raw, name, first, end, checkpoint.Width(dtype), hf.ReadFrom(w.src, checkpoint.Model)); err != nil {
		return nil, err
	}
	all := make([]byte, (end-first)*width*4)
	if err := checkpoint.Convert(all, "F32", raw, dtype); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	values := make([]float32, (end-first)*width)
	gguf.Decode(values, gguf.F32, all)
	return values, nil
}

// Known reports whether Write makes a type.
func Known(kind string) bool { _, ok := kinds[kind]; return ok }
