package peft

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Folder is an open adapter of a model. It is a checkpoint.Source of the adapter's parameters.
type Folder struct {
	Config   Config
	Adapters []spec.Adapter

	path      string
	file      *safetensors.File
	model     *spec.Model
	mapping   *hf.Mapping
	tensors   map[string]tensor // by our name, with the key that the file has
	keys      map[string]string // of weights of the base that the file holds too, by Hugging Face's names
	replacing []string          // these weights, by our names
	list      []checkpoint.Tensor

	mu     sync.Mutex
	turned map[string][]byte // tensors that lie otherwise in the file, as ours
}

// Open opens the adapter in dir for a model of a family ("": the one that can express it), and
// checks that the file has the tensors that its settings say, in their shapes, and no others.
func Open(dir string, m *spec.Model, family string) (f *Folder, err error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	f = &Folder{Config: c, path: filepath.Join(dir, WeightsFile), tensors: map[string]tensor{}, keys: map[string]string{}, turned: map[string][]byte{}}
	adapted := *m
	if f.Adapters, err = Resolve(m, family, c); err == nil {
		if f.mapping, err = mappingOf(m, family); err == nil {
			adapted.Retrained, err = Retrain(m, family, c, f.Adapters)
		}
	}
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", filepath.Join(dir, ConfigFile), err)
	}
	adapted.Adapters = f.Adapters
	f.model = &adapted
	if _, err := os.Stat(filepath.Join(dir, "adapter_model.bin")); err == nil {
		if _, err := os.Stat(f.path); err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the adapter is a pickle, adapter_model.bin; save it again in PEFT, with safe_serialization=True", dir)
		}
	}
	if f.file, err = safetensors.Open(f.path); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		_ = f.file.Close() // only read
		return nil, err
	}
	return f, nil
}

// check finds every tensor.
func (f *Folder) check() error {
	known := map[string]bool{}
	for _, t := range tensorsOf(f.Adapters) {
		info, ok := f.file.Info(t.key)
		if older := t.key + ".weight"; !ok && strings.HasSuffix(t.key, ".lora_magnitude_vector") { // as PEFT wrote it for a while
			if info, ok = f.file.Info(older); ok {
				t.key = older
			}
		}
		if !ok {
			return f.bad("tensor %s is missing; adapter_config.json says that the module has an adapter", t.key)
		}
		if err := f.fits(t.key, info, t.kept); err != nil {
			return err
		}
		known[t.key], f.tensors[t.name] = true, t
		f.add(t.name, info.DType, t.shape)
	}
	if err := f.checkComplete(known); err != nil {
		return err
	}
	for _, name := range f.file.Names() {
		if !known[name] {
			return f.bad("tensor %s belongs to no module that adapter_config.json adapts or saves", name)
		}
	}
	return nil
}

func (f *Folder) bad(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: "+format, append([]any{f.path}, args...)...)
}

// fits refuses a tensor of another shape or type.
func (f *Folder) fits(key string, info safetensors.Info, shape []int64) error {
	switch {
	case !slices.Equal(info.Shape, shape):
		return f.bad("tensor %s has the shape %v, but adapter_config.json and the model require the shape %v", key, info.Shape, shape)
	case !slices.Contains([]string{"F32", "BF16", "F16", "F64"}, info.DType):
		return f.bad("tensor %s is %s; it must be F32, BF16, F16 or F64", key, info.DType)
	}
	return nil
}

// add lists a parameter, which is a main parameter too.
func (f *Folder) add(name, dtype string, shape []int64) {
	for _, prefix := range []string{checkpoint.Model, checkpoint.Main} {
		f.list = append(f.list, checkpoint.Tensor{Name: prefix + name, DType: dtype, Shape: shape})
	}
}

// checkComplete finds the weights that are in the file in full: those that were trained with the adapter, and an adapted
// table's own, which PEFT writes next to its adapter.
func (f *Folder) checkComplete(known map[string]bool) error {
	// What adapter_config.json says, and tables that PEFT keeps with their adapters.
	wanted := []string{}
	if f.model.Retrained != nil {
		wanted = slices.Clone(f.model.Retrained.Names)
	}
	for _, a := range f.Adapters {
		name := a.Linear + ".weight"
		if _, has := f.file.Info(mpu.AdapterPrefix + a.Module + ".base_layer.weight"); has && checkpoint.IsVocabulary(name) {
			wanted = append(wanted, name)
		}
	}
	for _, global := range wanted {
		dtype := ""
		// Each is stored under one of two names.
		for _, s := range f.mapping.SourcesOf(global) {
			keys := storedKeys(s.Name)
			info, ok := f.file.Info(keys[0])
			if !ok {
				keys = keys[1:]
				info, ok = f.file.Info(keys[0])
			}
			switch {
			case !ok:
				return f.bad("tensor %s is missing; adapter_config.json says that it is trained with the adapter", mpu.AdapterPrefix+s.Name)
			case dtype != "" && info.DType != dtype:
				return f.bad("tensor %s is %s, but a tensor that is combined with it is %s; write both in the same type", keys[0], info.DType, dtype)
			}
			if err := f.fits(keys[0], info, s.Shape); err != nil {
				return err
			}
			known[keys[0]], f.keys[s.Name], dtype = true, keys[0], info.DType
		}
		f.replacing = append(f.replacing, global)
		f.add(global, dtype, f.mapping.GlobalShape(global))
	}
	return nil
}

// Replaced are the weights of the base that the adapter has in full, by their names.
func (f *Folder) Replaced() []string { return f.replacing }

// Retrained are those of Replaced that were trained with the adapter; nil: none.
func (f *Folder) Retrained() *spec.Retrained { return f.model.Retrained }

// Holds reports whether the adapter has a weight of the base in full, by its name.
func (f *Folder) Holds(name string) bool { return slices.Contains(f.replacing, name) }

// Replaces are the weights of the base that the adapter has and that were not trained with it: PEFT writes
// those of adapted tables. They replace the base's all the same.
func (f *Folder) Replaces() (names []string) {
	for _, name := range f.replacing {
		if !f.model.Retrained.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// Info says which model the adapter is of.
func (f *Folder) Info() checkpoint.Info {
	return checkpoint.Info{Path: f.path, Model: f.model}
}

// Tensors lists the adapter's parameters, which are main parameters too.
func (f *Folder) Tensors() []checkpoint.Tensor { return f.list }

// State is empty: an adapter is weights alone.
func (f *Folder) State() checkpoint.State { return checkpoint.State{} }

// Close closes the file.
func (f *Folder) Close() error { return f.file.Close() }

// Read fills dst with a box of a tensor.
func (f *Folder) Read(name string, box mpu.Piece, dst []byte) error {
	name = strings.TrimPrefix(strings.TrimPrefix(name, checkpoint.Model), checkpoint.Main)
	if f.Holds(name) {
		return f.readReplaced(name, box, dst)
	}
	t, ok := f.tensors[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s has no tensor %q; report this, and include the command line", f.path, name)
	}
	info, _ := f.file.Info(t.key)
	width, err := checkpoint.Width(info.DType), error(nil)
	box.Local = 0
	if t.turn != nil {
		raw, err := f.turn(t, info, width)
		if err == nil {
			box.Runs(t.shape, func(at, local, n int64) { copy(dst[local*width:(local+n)*width], raw[at*width:]) })
		}
		return err
	}
	box.Runs(t.shape, func(at, local, n int64) {
		if err == nil {
			err = f.file.ReadAt(t.key, dst[local*width:(local+n)*width], at*width)
		}
	})
	return err
}

// readReplaced is Read of a weight of the base.
func (f *Folder) readReplaced(name string, box mpu.Piece, dst []byte) error {
	info, _ := f.file.Info(f.keys[f.mapping.SourcesOf(name)[0].Name])
	return f.mapping.Gather(dst, name, box.From, box.Size, checkpoint.Width(info.DType), func(theirs string, dst []byte, at int64) error {
		return f.file.ReadAt(f.keys[theirs], dst, at)
	})
}

// turn is a tensor that lies otherwise in the file, as ours.
func (f *Folder) turn(t tensor, info safetensors.Info, width int64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if raw := f.turned[t.name]; raw != nil {
		return raw, nil
	}
	there := make([]byte, checkpoint.Volume(info.Shape)*width)
	if err := f.file.ReadAt(t.key, there, 0); err != nil {
		return nil, err
	}
	raw := make([]byte, len(there))
	for i := range checkpoint.Volume(info.Shape) {
		copy(raw[i*width:(i+1)*width], there[t.turned(i)*width:])
	}
	f.turned[t.name] = raw
	return raw, nil
}

// Values are those of an adapter's tensor, by our name and in our order, as f32. One that is NaN or infinite is an
// error: it would spoil every output of the weight.
func (f *Folder) Values(name string) ([]float32, error) {
	t := f.tensors[name]
	there, err := f.file.Float32(t.key)
	if err != nil {
		return nil, err
	}
	list := there
	if t.turn != nil {
		list = make([]float32, len(there))
	}
	for i, x := range there {
		if x-x != 0 {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %s: element %d is NaN or infinite; use the adapter of an earlier checkpoint", f.path, t.key, i)
		}
		if t.turn != nil {
			list[i] = there[t.turned(int64(i))]
		}
	}
	return list, nil
}
