package hf

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/internal/safetensors"
)

// Names of weights that torch.save wrote.
const (
	binName      = "pytorch_model.bin"
	binIndexName = "pytorch_model.bin.index.json"
)

// Torch is tensors of torch.save files by name.
type Torch struct {
	dir     string
	files   []*pickle.File
	names   []string
	tensors map[string]*pickle.Tensor
	from    map[string]*pickle.File

	mu     sync.Mutex
	turned string // the tensor whose elements are in order here, whatever the file's
	raw    []byte
}

// NewTorch is empty; dir is for messages.
func NewTorch(dir string) *Torch {
	return &Torch{dir: dir, tensors: map[string]*pickle.Tensor{}, from: map[string]*pickle.File{}}
}

// openBin opens pytorch_model.bin, or the shards of its index.
func openBin(dir string, sharded bool) (Files, error) {
	t := NewTorch(dir)
	if !sharded {
		return t.opened(t.open(binName, nil))
	}
	index := filepath.Join(dir, binIndexName)
	weights, err := safetensors.ReadIndex(index)
	if err != nil {
		return nil, err
	}
	byShard := map[string][]string{}
	for name, shard := range weights {
		if !safetensors.PlainName(shard) {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %q: %q is not the name of a file in this folder", index, name, shard)
		}
		byShard[shard] = append(byShard[shard], name)
	}
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		if err := t.open(shard, byShard[shard]); err != nil {
			return t.opened(exitcode.Errorf(exitcode.CodeOf(err), "%s lists %q: %w", index, shard, err))
		}
	}
	return t, nil
}

func (t *Torch) opened(err error) (Files, error) {
	if err != nil {
		_ = t.Close() // opened for reading
		return nil, err
	}
	return t, nil
}

// open adds a file, which must have the named tensors.
func (t *Torch) open(name string, must []string) error {
	f, err := pickle.Open(filepath.Join(t.dir, name))
	if err != nil {
		return err
	}
	t.files = append(t.files, f)
	dict, ok := f.Root.(*pickle.Dict)
	if !ok {
		return exitcode.Errorf(exitcode.BadData, "%s contains an object of type %s; it must contain a dict of tensors", f.Name, pickle.TypeName(f.Root))
	}
	if err := t.Add(f, dict, func(name string) string { return name }); err != nil {
		return err
	}
	for _, name := range must {
		if t.from[name] != f {
			return exitcode.Errorf(exitcode.BadData, "%s does not contain tensor %q, although the index of the weights lists it there", f.Name, name)
		}
	}
	return nil
}

// Add takes the tensors of a dict of f under names that `as` makes; "" leaves one out.
func (t *Torch) Add(f *pickle.File, dict *pickle.Dict, as func(name string) string) error {
	for _, p := range dict.Pairs {
		key, ok := p.Key.(string)
		tensor, isTensor := p.Value.(*pickle.Tensor)
		if !ok {
			return exitcode.Errorf(exitcode.BadData, "%s: a key of the dict of tensors has type %s; it must be a string", f.Name, pickle.TypeName(p.Key))
		}
		if !isTensor {
			return exitcode.Errorf(exitcode.BadData, "%s: entry %q has type %s; it must be a tensor", f.Name, key, pickle.TypeName(p.Value))
		}
		name := as(key)
		if name == "" {
			continue
		}
		if t.tensors[name] != nil {
			return exitcode.Errorf(exitcode.BadData, "%s: tensor %q occurs twice", f.Name, key)
		}
		t.names = append(t.names, name)
		t.tensors[name], t.from[name] = tensor, f
	}
	return nil
}

// Names lists the tensors in the order of the files.
func (t *Torch) Names() []string { return t.names }

// Info describes a tensor, without its position in the file.
func (t *Torch) Info(name string) (safetensors.Info, bool) {
	v := t.tensors[name]
	if v == nil {
		return safetensors.Info{}, false
	}
	return safetensors.Info{Name: name, DType: v.DType, Shape: v.Shape, Bytes: v.Bytes()}, true
}

// ReadAt fills dst with a tensor's row-major bytes from at.
func (t *Torch) ReadAt(name string, dst []byte, at int64) error {
	v := t.tensors[name]
	if v == nil {
		return exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", t.dir, name)
	}
	if at < 0 || at+int64(len(dst)) > v.Bytes() {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s: bytes %d to %d are outside its %d bytes; report this, and include the command line", t.where(name), at, at+int64(len(dst)), v.Bytes())
	}
	if v.Contiguous() {
		return t.say(name, v.ReadAt(dst, at))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turned != name {
		raw, err := v.Read()
		if err != nil {
			return t.say(name, err)
		}
		t.turned, t.raw = name, raw
	}
	copy(dst, t.raw[at:])
	return nil
}

// say adds file and tensor to an error.
func (t *Torch) say(name string, err error) error {
	if err == nil {
		return nil
	}
	code := exitcode.CodeOf(err)
	if code == exitcode.Internal {
		code = exitcode.BadData
	}
	return exitcode.Errorf(code, "%s: %w", t.where(name), err)
}

func (t *Torch) where(name string) string { return fmt.Sprintf("%s: tensor %q", t.Where(name), name) }

// Where is the path of the file that holds a tensor.
func (t *Torch) Where(name string) string {
	if f := t.from[name]; f != nil {
		return f.Name
	}
	return t.dir
}

// Close closes the files.
func (t *Torch) Close() error {
	var errs []error
	for _, f := range t.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
