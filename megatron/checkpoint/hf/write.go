package hf

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// defaultShard is the size of a file where none is asked for, as transformers 4.
const defaultShard = 5e9

// GenerationName is the file with the ids that start, end and fill a text.
const GenerationName = "generation_config.json"

// tokenizerFiles are carried over where the source's folder has them.
var tokenizerFiles = append(slices.Clone(tokenizer.HuggingFaceFiles), GenerationName)

// Write makes a folder with config.json, sharded safetensors, generation config
// and the tokenizer's files. Each tensor keeps its type.
func Write(ctx context.Context, path string, src checkpoint.Source, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	w, err := newWriting(src, o)
	if err != nil {
		return checkpoint.Written{}, err
	}
	done := checkpoint.Written{Path: path}
	err = checkpoint.Folder(ctx, path, func(tmp string) error { return w.folder(ctx, tmp, &done) })
	if err != nil {
		return checkpoint.Written{}, err
	}
	done.Notes = w.notes
	return done, nil
}

// writing is one export under way.
type writing struct {
	src       checkpoint.Source
	o         checkpoint.WriteOptions
	mapping   *Mapping
	infos     []safetensors.Info
	dtype     string      // of most weights
	quantized *quantizing // nil: weights keep their types
	fours     *fours      // the experts in MXFP4; nil: none
	notes     []string
}

func newWriting(src checkpoint.Source, o checkpoint.WriteOptions) (*writing, error) {
	// The family, its names, the tensors with types.
	m := src.Info().Model
	family, err := chooseFamily(src.Info(), o)
	if err != nil {
		return nil, err
	}
	if !writable(family, m) {
		return nil, exitcode.Errorf(exitcode.Usage, "this %s model can be read, but not written: transformers' class always has latent attention and %s; use a Megatron format or the format native", family, routerOf(family))
	}
	w := &writing{src: src, o: o}
	if w.mapping, err = NewMapping(m, family); err != nil {
		return nil, err
	}
	if w.infos, w.notes, err = Plan(src, w.mapping); err != nil {
		return nil, err
	}
	w.notes = append(w.notes, latentNotes(m)...)
	w.dtype = w.commonType()
	// Weights that are stored in codes.
	if o.Quantization == NF4 || o.Quantization == Int8 {
		if err := w.quantize(); err != nil {
			return nil, err
		}
	}
	if o.Quantization == MXFP4 {
		if err := w.quantizeExperts(); err != nil {
			return nil, err
		}
	}
	if o.ShardSize <= 0 {
		w.o.ShardSize = defaultShard
	}
	return w, nil
}

// chooseFamily is the asked one, else the source's where the model still is of
// it, else the natural one.
func chooseFamily(info checkpoint.Info, o checkpoint.WriteOptions) (string, error) {
	switch {
	case o.Family != "":
		return o.Family, CheckFamily(o.Family)
	case writable(info.Family, info.Model) && Expresses(info.Family, info.Model) == nil:
		return info.Family, nil
	}
	return FamilyOf(info.Model)
}

// Plan lists their tensors, with types, that mp makes out of src's values. All
// that src lacks is one error. Notes say what is left out.
func Plan(src checkpoint.Source, mp *Mapping) (infos []safetensors.Info, notes []string, err error) {
	// The weights of the source.
	have := map[string]checkpoint.Tensor{}
	others := 0
	for _, t := range src.Tensors() {
		if name, ok := strings.CutPrefix(t.Name, checkpoint.Model); ok {
			have[name] = t
		} else {
			others++
		}
	}
	// Every tensor of theirs is made of one of ours, all of which must be there.
	var wrong []error
	for i := range mp.rules {
		r := &mp.rules[i]
		t, ok := have[r.global]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("tensor %q is missing", r.global))
		case !slices.Equal(t.Shape, r.shape):
			wrong = append(wrong, fmt.Errorf("tensor %q has the shape %v, but the model requires the shape %v", r.global, t.Shape, r.shape))
		case !checkpoint.IsFloat(t.DType):
			wrong = append(wrong, fmt.Errorf("tensor %q is %s, which is not a float type", r.global, t.DType))
		}
		for _, s := range r.sources {
			full, j, slab := slabOf(s.Name)
			if slab {
				s.Shape = mp.slabs[full]
			}
			if j == 0 {
				infos = append(infos, safetensors.Info{Name: full, DType: t.DType, Shape: s.Shape})
			}
		}
		delete(have, r.global)
	}
	// Nothing of the source is left over but the optimizer.
	for name := range have {
		wrong = append(wrong, fmt.Errorf("tensor %q is not part of a %s model", name, mp.Family))
	}
	if len(wrong) > 0 {
		slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, nil, exitcode.Errorf(exitcode.BadData, "%s: %w", src.Info().Path, Some(wrong))
	}
	if others > 0 {
		notes = append(notes, fmt.Sprintf("%d tensors of the optimizer are left out: the format stores weights only", others))
	}
	return infos, notes, nil
}

// ReadFrom is a ReadBox of src's tensors of one kind.
func ReadFrom(src checkpoint.Source, prefix string) ReadBox {
	return func(global string, from, size []int64, dst []byte) error {
		return src.Read(prefix+global, mpu.Piece{From: from, Size: size}, dst)
	}
}

func (w *writing) folder(ctx context.Context, dir string, done *checkpoint.Written) error {
	shards := w.shards()
	read := ReadFrom(w.src, checkpoint.Model)
	// A file a shard, whose tensors are made while they are written.
	index := map[string]string{}
	for i, infos := range shards {
		name := safetensors.SingleName
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		bytes, err := safetensors.WriteFile(ctx, filepath.Join(dir, name), infos, map[string]string{"format": "pt"}, func(i int, from, to int64, dst []byte) error {
			if w.quantized != nil && w.quantized.of[infos[i].Name] != nil {
				return w.quantized.fill(dst, infos[i].Name, from, to)
			}
			if w.fours != nil && w.fours.of[infos[i].Name] != "" {
				return w.fours.fill(dst, infos[i].Name, from, to)
			}
			return w.mapping.ScatterRows(dst, infos[i].Name, from, to, checkpoint.Width(infos[i].DType), read)
		})
		if err != nil {
			return err
		}
		done.Bytes += bytes
		done.Files++
		for _, info := range infos {
			index[info.Name] = name
		}
	}
	// Several files have an index.
	if len(shards) > 1 {
		if err := w.writeIndex(dir, index); err != nil {
			return err
		}
	}
	return w.writeTexts(dir)
}

// shards cuts the tensors, in order, into files of at most ShardSize where one
// tensor allows it.
func (w *writing) shards() (list [][]safetensors.Info) {
	kept := int64(0)
	for _, info := range w.infos {
		n := checkpoint.Width(info.DType) * elements(info.Shape)
		if len(list) == 0 || kept+n > w.o.ShardSize {
			list, kept = append(list, nil), 0
		}
		list[len(list)-1] = append(list[len(list)-1], info)
		kept += n
	}
	return list
}

func (w *writing) writeIndex(dir string, index map[string]string) error {
	total, parameters := int64(0), int64(0)
	for _, info := range w.infos {
		n := elements(info.Shape)
		parameters += n
		total += n * checkpoint.Width(info.DType)
	}
	return writeJSON(filepath.Join(dir, safetensors.IndexName), map[string]any{
		"metadata": map[string]any{"total_size": total, "total_parameters": parameters}, "weight_map": index})
}

// writeTexts writes the configs and copies the tokenizer.
func (w *writing) writeTexts(dir string) error {
	config := configOf(w.mapping.Model, ExportOptions{Family: w.mapping.Family, DType: w.dtype, MaxPositions: w.mapping.Model.Context})
	if w.quantized != nil {
		config["quantization_config"] = quantizationConfig(w.o.Quantization, w.o.DoubleQuant)
	}
	if w.fours != nil {
		config["quantization_config"] = map[string]any{"quant_method": MXFP4, "modules_to_not_convert": []string{"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}
	}
	ids, err := w.specials()
	if err != nil {
		return err
	}
	for name, id := range ids {
		config[name] = id
	}
	if err := writeJSON(filepath.Join(dir, ConfigName), config); err != nil {
		return err
	}
	// The tokenizer's files; then what generation needs, if they do not say it.
	if w.o.Tokenizer != "" {
		err = copyFiles(dir, w.o.Tokenizer, tokenizerFiles)
		w.noteNoTokenizer()
	} else {
		err = w.writeTokenizer(dir)
	}
	if err != nil {
		return err
	}
	generation := filepath.Join(dir, GenerationName)
	if _, err := os.Stat(generation); err == nil {
		return nil
	}
	general := map[string]any{"_from_model_config": true}
	for name, id := range ids {
		general[name] = id
	}
	return writeJSON(generation, general)
}

// commonType is the type of most tensors.
func (w *writing) commonType() string {
	count := map[string]int{}
	best := w.infos[0].DType
	for _, info := range w.infos {
		if count[info.DType]++; count[info.DType] > count[best] {
			best = info.DType
		}
	}
	return best
}

// readObject reads a JSON object; nil if the file does not exist.
func readObject(path string) (map[string]any, error) {
	raw, err := exitcode.ReadFile(path, maxConfig)
	switch exitcode.CodeOf(err) {
	case exitcode.NoInput, exitcode.BadData:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is not a JSON object: %w", path, err)
	}
	return object, nil
}

// copyFiles copies those of names that from has.
func copyFiles(to, from string, names []string) error {
	for _, name := range names {
		f, err := exitcode.Open(filepath.Join(from, name))
		if exitcode.CodeOf(err) == exitcode.NoInput {
			continue
		}
		if err != nil {
			return err
		}
		err = checkpoint.WriteFile(filepath.Join(to, name), func(w io.Writer) error { _, err := io.Copy(w, f); return err })
		_ = f.Close() // opened for reading
		if err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	return checkpoint.WriteFile(path, func(w io.Writer) error { _, err := w.Write(append(text, '\n')); return err })
}

// Values is a Source of a model's values that a function gives, f32: what a
// program that holds them in memory writes with.
func Values(m *spec.Model, family string, get func(global string) ([]float32, error)) checkpoint.Source {
	return &values{m: m, family: family, get: get}
}

type values struct {
	m      *spec.Model
	family string
	get    func(global string) ([]float32, error)
}

func (v *values) Info() checkpoint.Info {
	return checkpoint.Info{Path: "the model", Family: v.family, Model: v.m}
}

func (v *values) Tensors() []checkpoint.Tensor {
	list := checkpoint.Expected(v.m)
	for i := range list {
		list[i].Name, list[i].DType = checkpoint.Model+list[i].Name, "F32"
	}
	return list
}

func (v *values) Read(name string, box mpu.Piece, dst []byte) error {
	all, err := v.get(strings.TrimPrefix(name, checkpoint.Model))
	if err != nil {
		return err
	}
	at, row := int64(0), int64(1)
	for _, n := range box.Size[1:] {
		row *= n
	}
	at = box.From[0] * row
	if int64(len(all)) < at+box.Len() {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q has %d elements, but elements up to %d were requested; report this, and include the command line", name, len(all), at+box.Len())
	}
	_, _ = safetensors.Encode(dst[:0], "F32", all[at:at+box.Len()]) // F32 is known
	return nil
}

func (v *values) State() checkpoint.State { return checkpoint.State{} }
func (v *values) Close() error            { return nil }
