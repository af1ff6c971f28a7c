package hf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// ConfigName is the file that describes the model.
const ConfigName = "config.json"

// Files are the tensors of a folder under the names that its files give them:
// safetensors, or what torch.save made.
type Files interface {
	Names() []string
	Info(name string) (safetensors.Info, bool)
	ReadAt(name string, dst []byte, at int64) error
	Where(name string) string // path of the file
	Close() error
}

// Folder is an open Hugging Face folder whose tensors all fit its config.
type Folder struct {
	Config
	Path    string
	Mapping *Mapping

	files   Files
	stored  map[string]string // canonical name -> name in the files
	further int               // tensors of layers that predict further tokens
	keys    int               // of keys and values that no layer reads
	left    []string          // what else is left out
}

// derived are tensors that follow from the config and carry no weights: causal
// masks of GPT-2, rotary tables.
var derived = regexp.MustCompile(`(^|\.)((attn|attention)\.(bias|masked_bias)|rotary_emb\.inv_freq)$`)

// Open reads config.json and the headers of the weights of dir, and checks that
// each tensor the model needs is there in its shape and that no other is.
func Open(dir string) (*Folder, error) { return open(dir, false) }

// open is Open, which leaves layers of multi-token prediction out unless mtp is set.
func open(dir string, mtp bool) (*Folder, error) {
	config, err := ReadConfig(filepath.Join(dir, ConfigName))
	if err != nil {
		return nil, err
	}
	files, err := openFiles(dir)
	if err != nil {
		return nil, err
	}
	own := rows[config.Family].ownAhead
	if own && slices.ContainsFunc(files.Names(), func(name string) bool { return strings.HasSuffix(name, ownAheadProjection) }) {
		config.Further = max(1, config.Further) // some of these config.json do not tell
	}
	if mtp && config.Further > 0 {
		config.Model.MTP = &spec.MTP{Depths: config.Further, LossScale: 0.1}
	}
	mp, err := NewMapping(config.Model, config.Family)
	if err != nil {
		_ = files.Close() // the first error counts
		return nil, err
	}
	var left []string
	if config.Wrapped || own || rows[config.Family].leavesAhead {
		text := newTextPart(files, config.Wrapped, config.Model.MTP != nil)
		files, left = text, text.left
	}
	if files, err = decoded(files, mp, config); err != nil {
		return nil, err
	}
	f := &Folder{Config: *config, Path: dir, Mapping: mp, files: files, left: left, stored: map[string]string{}}
	if err := f.check(); err != nil {
		_ = files.Close() // the first error counts
		return nil, err
	}
	return f, nil
}

// decoded shows files with each expert by itself and quantized weights as what their codes stand for. It
// closes files where there is an error.
func decoded(files Files, mp *Mapping, config *Config) (shown Files, err error) {
	shown = files
	if config.Quantization == MXFP4 {
		shown, err = newMXFP4(files, mp, cmp.Or(config.DType, "BF16"))
	}
	if err == nil && len(mp.slabs) > 0 {
		shown = slabbed{shown, ofExperts}
	}
	if err == nil && config.Quantization != "" && config.Quantization != MXFP4 {
		shown, err = dequantize(shown, mp, config)
	}
	if err != nil {
		_ = files.Close() // the first error counts
	}
	return shown, err
}

// openFiles takes safetensors where both kinds are there, as transformers does.
func openFiles(dir string) (Files, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case has(safetensors.IndexName), has(safetensors.SingleName):
		return safetensors.OpenFolder(dir)
	case has(binIndexName):
		return openBin(dir, true)
	case has(binName):
		return openBin(dir, false)
	}
	return nil, exitcode.Errorf(exitcode.NoInput, "%s has a %s but no weights: no %s, %s, %s or %s", dir, ConfigName,
		safetensors.SingleName, safetensors.IndexName, binName, binIndexName)
}

// OpenSource opens dir as a checkpoint.
func OpenSource(dir string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	f, err := open(dir, o.MTP)
	if err != nil {
		return nil, err
	}
	m := *f.Model
	m.Context = f.MaxPositions
	info := checkpoint.Info{Format: checkpoint.HF, Path: dir, Family: f.Family, Model: &m, Tokenizer: tokenizerOf(dir), Specials: specialsOf(dir)}
	if info.Quantization = f.Quantization; info.Quantization != "" {
		info.Notes = append(info.Notes, fmt.Sprintf("weights are stored in %s and are dequantized when they are read", strings.ToUpper(info.Quantization)))
	}
	if info.Tokenizer.Type == "Llama2Tokenizer" {
		if note := tokenizer.LeftOut(info.Tokenizer.Model); note != "" {
			info.Notes = append(info.Notes, note)
		}
	}
	if len(f.left) > 0 {
		info.Notes = append(info.Notes, strings.Join(f.left, " and ")+" are left out, as in transformers' class for the text part")
	}
	if f.keys > 0 {
		info.Notes = append(info.Notes, fmt.Sprintf("%d tensors of keys and values in the last num_kv_shared_layers layers, which use the keys and values of other layers, are left out, as in transformers", f.keys))
	}
	switch {
	case f.further > 0 && m.MTP != nil:
		info.Notes = append(info.Notes, fmt.Sprintf("%d copies of the embedding and output layer in the layers of multi-token prediction (num_nextn_predict_layers) are left out, because these layers use the embedding and output layer of the model", f.further))
	case f.further > 0:
		info.Notes = append(info.Notes, fmt.Sprintf("%d tensors of layers of multi-token prediction (num_nextn_predict_layers) are left out, as in transformers; with --mtp-num-layers %d a run trains them", f.further, f.Further))
	}
	s, err := NewMapped(info, checkpoint.State{}, f.Mapping, []Kind{{checkpoint.Model, f}}, f.Close)
	if err != nil {
		_ = f.Close() // the first error counts
		return nil, err
	}
	return s, nil
}

// Close closes the weights.
func (f *Folder) Close() error { return f.files.Close() }

// check finds every needed tensor and reports together all that are missing, of another
// shape, or without a position in the model.
func (f *Folder) check() error {
	var wrong []error
	used := map[string]bool{}
	// What the model needs.
	for _, src := range f.Mapping.Sources() {
		name, info, ok := f.find(src.Name)
		if !ok && f.Model.Tied && src.Name == f.Mapping.rules[0].sources[0].Name {
			name, info, ok = f.find(headName(f.Family)) // one of two equal tensors is stored
		}
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("%s: the model that %s describes needs the tensor %q, but no file of the folder has it", f.Path, ConfigName, src.Name))
			continue
		case !slices.Equal(info.Shape, src.Shape):
			wrong = append(wrong, fmt.Errorf("%s: tensor %q has the shape %v, but %s requires the shape %v", f.files.Where(name), name, info.Shape, ConfigName, src.Shape))
		}
		f.stored[src.Name] = name
		used[name] = true
	}
	// What the folder has: used, known to be left out, or an error.
	for _, name := range f.files.Names() {
		tiedHead := f.Model.Tied && name == headName(f.Family)
		if tiedHead {
			wrong = append(wrong, f.checkHead()...)
		}
		switch {
		case used[name] || tiedHead || derived.MatchString(name):
		case f.predictsFurther(name):
			f.further++
		case f.Mapping.keysUnread(name):
			f.keys++
		default:
			wrong = append(wrong, fmt.Errorf("%s: tensor %q is not part of the model that %s describes; ignoring this tensor would change the results", f.files.Where(name), name, ConfigName))
		}
	}
	return exitcode.With(exitcode.BadData, Some(wrong))
}

// predictsFurther reports a tensor of a layer after the model's, which transformers leaves
// out as well: it is for predicting several tokens at once. Where these layers are read, it is
// a copy of the embedding or the output layer in one.
func (f *Folder) predictsFurther(name string) bool {
	for i := range f.Further {
		rest, ok := strings.CutPrefix(name, fmt.Sprintf("model.layers.%d.", f.Model.NumLayers+i))
		if ok && (f.Model.MTP == nil || rest == "embed_tokens.weight" || rest == "shared_head.head.weight") {
			return true
		}
	}
	return false
}

// checkHead refuses an output layer that is not the embedding though config.json
// ties the two: versions of transformers differ in which of them counts. It compares
// both ends and the middle; a trained layer differs everywhere.
func (f *Folder) checkHead() []error {
	headName := headName(f.Family)
	words := f.stored[f.Mapping.rules[0].sources[0].Name]
	head, _ := f.files.Info(headName)
	tied, ok := f.files.Info(words)
	same := ok && head.DType == tied.DType && slices.Equal(head.Shape, tied.Shape)
	for _, at := range []int64{0, head.Bytes / 2, head.Bytes} {
		const most = 64 << 10
		n := min(most, head.Bytes)
		a, b := make([]byte, n), make([]byte, n)
		at = min(at, head.Bytes-n)
		if !same {
			break
		}
		if err := errors.Join(f.files.ReadAt(headName, a, at), f.files.ReadAt(words, b, at)); err != nil {
			return []error{err}
		}
		same = bytes.Equal(a, b)
	}
	if same {
		return nil
	}
	return []error{fmt.Errorf("%s: tensor %q is not equal to %s, although tie_word_embeddings in %s declares them equal; set tie_word_embeddings to false, or remove the tensor",
		f.files.Where(headName), headName, words, ConfigName)}
}

// Some joins errors; of many it keeps the first ones and counts the rest.
func Some(list []error) error {
	const shown = 8
	if more := len(list) - shown; more > 1 {
		list = append(slices.Clone(list[:shown]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(list...)
}

// find finds a tensor under its name or, in files of the bare model, without
// the name's first part.
func (f *Folder) find(name string) (string, safetensors.Info, bool) {
	info, ok := f.files.Info(name)
	if ok {
		return name, info, true
	}
	_, bare, found := strings.Cut(name, ".")
	if !found || strings.HasPrefix(name, "lm_head.") {
		return name, info, false
	}
	info, ok = f.files.Info(bare)
	return bare, info, ok
}

// Info is a Store's.
func (f *Folder) Info(name string) (dtype string, shape []int64, ok bool) {
	info, ok := f.files.Info(f.stored[name])
	return info.DType, info.Shape, ok
}

// ReadAt is a Store's.
func (f *Folder) ReadAt(name string, dst []byte, at int64) error {
	return f.files.ReadAt(f.stored[name], dst, at)
}

// Where is a Store's.
func (f *Folder) Where(name string) string {
	stored := f.stored[name]
	return fmt.Sprintf("%s: tensor %q", f.files.Where(stored), stored)
}
