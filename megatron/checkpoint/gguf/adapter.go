package gguf

import (
	"context"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// WriteAdapter makes the GGUF file path of an adapter alone, for a model of llama.cpp that is loaded with it
// (--lora): of each module A as NAME.lora_a [rank, in] and B as NAME.lora_b [out, rank], rows in the order of the base's.
// llama.cpp's scale is alpha over the rank of each module; where a module's own is another one, its B is
// multiplied by what is missing, and a note says so.
func WriteAdapter(ctx context.Context, path string, base checkpoint.Info, f *peft.Folder, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	done := checkpoint.Written{Path: path, Files: 1}
	// The base's family says how tensors are named and ordered.
	name, err := hf.ChooseFamily(base, o)
	if err != nil {
		return done, err
	}
	family, err := familyOf(name, base.Model)
	if err != nil {
		return done, err
	}
	c, err := newCorrespondence(base.Model, family)
	if err != nil {
		return done, err
	}
	if names := f.Replaced(); len(names) > 0 {
		return done, exitcode.Errorf(exitcode.Usage, "--adapter-only: the adapter also contains complete weights, such as %s (from modules_to_save or bias), which a GGUF adapter cannot store; leave --adapter-only out to merge the adapter", names[0])
	}
	w := &writingAdapter{c: c, f: f, kind: gguf.F32}
	if o.Quantization != "" {
		w.kind = kinds[o.Quantization]
	}
	// Two tensors for each module.
	var list []gguf.Output
	for _, a := range f.Adapters {
		two, err := w.outputs(a)
		if err != nil {
			return done, err
		}
		list = append(list, two...)
	}
	if w.scaled > 0 {
		done.Notes = append(done.Notes, "llama.cpp always scales an adapter by alpha divided by its rank; for modules with another scale, the ratio of the two scales is multiplied into B")
	}
	err = checkpoint.Single(path, func() (err error) {
		done.Bytes, err = gguf.Write(ctx, path, w.metadata(filepath.Base(path)), list)
		return err
	})
	return done, err
}

// writingAdapter is one file under way.
type writingAdapter struct {
	c      *correspondence
	f      *peft.Folder
	kind   gguf.Type
	scaled int // modules whose B is multiplied
}

func (w *writingAdapter) metadata(name string) []gguf.Pair {
	return []gguf.Pair{{Key: "general.architecture", Value: w.c.family.arch}, {Key: "general.type", Value: "adapter"}, {Key: "adapter.type", Value: "lora"},
		{Key: "general.name", Value: name}, {Key: "general.file_type", Value: fileTypes[w.kind]}, {Key: "general.quantization_version", Value: uint32(2)},
		{Key: "adapter.lora.alpha", Value: float32(w.f.Config.Alpha)}}
}

// outputs are the two tensors of a module.
func (w *writingAdapter) outputs(a spec.Adapter) ([]gguf.Output, error) {
	at, ok := w.c.where[w.c.mapping.StoredName(a.Module)+".weight"]
	// What GGUF adapters cannot hold.
	switch {
	case a.Table || a.Experts > 0 || a.Linear == "output_layer":
		return nil, exitcode.Errorf(exitcode.Usage, "module %s: a GGUF adapter cannot change embeddings, output layers or experts; leave --adapter-only out to merge the adapter", a.Module)
	case !ok:
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: module %s has no tensor in GGUF; report this, and include the command line, or leave --adapter-only out to merge the adapter", a.Module)
	case a.Magnitude:
		return nil, exitcode.Errorf(exitcode.Usage, "module %s: GGUF adapters cannot store magnitudes (DoRA); leave --adapter-only out to merge the adapter", a.Module)
	}
	t, r := &w.c.list[at.pieces[0][0]], int64(a.Rank)
	if len(at.pieces) > 1 || !t.pieces[at.pieces[0][1]].plain() || t.column != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "module %s: GGUF stores the weight in a different layout, to which an adapter cannot be converted; leave --adapter-only out to merge the adapter", a.Module)
	}
	// A [rank, in], B [out, rank].
	down, err := w.f.Values(mpu.AdapterPrefix + a.Module + ".lora_A.weight")
	if err != nil {
		return nil, err
	}
	up, err := w.f.Values(mpu.AdapterPrefix + a.Module + ".lora_B.weight")
	if err != nil {
		return nil, err
	}
	factor := float32(a.Scale * float64(a.Rank) / w.f.Config.Alpha)
	if factor != 1 {
		w.scaled++
	}
	// Rows of B in the order of the base's, times what alpha over the rank lacks of the module's scale.
	moved := make([]float32, len(up))
	for row := range int64(a.Out) {
		from := row
		if t.row != nil {
			from = t.row(row)
		}
		for i := range r {
			moved[row*r+i] = up[from*r+i] * factor
		}
	}
	return []gguf.Output{w.output(t.name+".lora_a", down, r, int64(a.In)), w.output(t.name+".lora_b", moved, int64(a.Out), r)}, nil
}

// output is a matrix; a row that the type's blocks do not divide is F16.
func (w *writingAdapter) output(name string, values []float32, rows, width int64) gguf.Output {
	kind := w.kind
	if width%kind.BlockElements() != 0 {
		kind = gguf.F16
	}
	return gguf.Output{Name: name, Dims: []int64{width, rows}, Type: kind, Fill: func(from, to int64, dst []byte) error {
		gguf.Encode(dst, kind, values[from*width:to*width])
		return nil
	}}
}
