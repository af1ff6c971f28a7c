package peft

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Folder is an open adapter of a model. It is a checkpoint.Source of the adapter's parameters.
type Folder struct {
	Config   Config
	Adapters []spec.Adapter

	path  string
	file  *safetensors.File
	model *spec.Model
	names map[string]string // in the file, by ours
	list  []checkpoint.Tensor
}

// Open opens the adapter in dir for a model of a family ("": the one that can express it), and
// checks that the file has the tensors that its settings say, in their shapes, and no others.
func Open(dir string, m *spec.Model, family string) (f *Folder, err error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	f = &Folder{Config: c, path: filepath.Join(dir, WeightsFile), names: map[string]string{}}
	if f.Adapters, err = Resolve(m, family, c); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", filepath.Join(dir, ConfigFile), err)
	}
	adapted := *m
	adapted.Adapters = f.Adapters
	f.model = &adapted
	if _, err := os.Stat(filepath.Join(dir, "adapter_model.bin")); err == nil {
		if _, err := os.Stat(f.path); err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the adapter is a pickle, adapter_model.bin; save it by PEFT with safe_serialization", dir)
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
	bad := func(format string, args ...any) error {
		return exitcode.Errorf(exitcode.BadData, "%s: "+format, append([]any{f.path}, args...)...)
	}
	known := map[string]bool{}
	for _, t := range Tensors(f.Adapters) {
		name := t.Name
		info, ok := f.file.Info(name)
		if !ok && strings.HasSuffix(name, ".lora_magnitude_vector") { // as PEFT wrote it for a while
			name += ".weight"
			info, ok = f.file.Info(name)
		}
		switch {
		case !ok:
			return bad("tensor %s is missing; adapter_config.json says that the module has an adapter", t.Name)
		case !slices.Equal(info.Shape, t.Shape):
			return bad("tensor %s has the shape %v; by adapter_config.json and the model it is %v", name, info.Shape, t.Shape)
		case !slices.Contains([]string{"F32", "BF16", "F16", "F64"}, info.DType):
			return bad("tensor %s is %s; must be F32, BF16, F16 or F64", name, info.DType)
		}
		known[name], f.names[t.Name] = true, name
		for _, prefix := range []string{checkpoint.Model, checkpoint.Main} {
			f.list = append(f.list, checkpoint.Tensor{Name: prefix + t.Name, DType: info.DType, Shape: t.Shape})
		}
	}
	for _, name := range f.file.Names() {
		if !known[name] {
			return bad("tensor %s belongs to no module that adapter_config.json adapts", name)
		}
	}
	return nil
}

// Tensors lists the tensors of adapters as files keep them, f32.
func Tensors(adapters []spec.Adapter) (list []checkpoint.Tensor) {
	for _, a := range adapters {
		name, r := mpu.AdapterPrefix+a.Module, int64(a.Rank)
		list = append(list, checkpoint.Tensor{Name: name + ".lora_A.weight", DType: "F32", Shape: []int64{r, a.In}},
			checkpoint.Tensor{Name: name + ".lora_B.weight", DType: "F32", Shape: []int64{a.Out, r}})
		if a.Magnitude {
			list = append(list, checkpoint.Tensor{Name: name + ".lora_magnitude_vector", DType: "F32", Shape: []int64{a.Out}})
		}
	}
	return list
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
	theirs := f.names[strings.TrimPrefix(strings.TrimPrefix(name, checkpoint.Model), checkpoint.Main)]
	info, ok := f.file.Info(theirs)
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "%s has no tensor %q", f.path, name)
	}
	width, err := checkpoint.Width(info.DType), error(nil)
	box.Local = 0
	box.Runs(info.Shape, func(at, local, n int64) {
		if err == nil {
			err = f.file.ReadAt(theirs, dst[local*width:(local+n)*width], at*width)
		}
	})
	return err
}

// Values are those of a tensor, by our name, as f32. One that is NaN or infinite is an error: it would spoil
// every output of the weight.
func (f *Folder) Values(name string) ([]float32, error) {
	list, err := f.file.Float32(f.names[name])
	if err != nil {
		return nil, err
	}
	for i, x := range list {
		if x-x != 0 {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %s: element %d is NaN or infinite; take the adapter of an earlier checkpoint", f.path, f.names[name], i)
		}
	}
	return list, nil
}

// adapterNames are the tensors of a source that hold adapters' parameters, by the parameters'
// names: main parameters, which are exact, where it has them.
func adapterNames(src checkpoint.Source) map[string]string {
	found := map[string]string{}
	for _, prefix := range []string{checkpoint.Model, checkpoint.Main} {
		for _, t := range src.Tensors() {
			if name, is := strings.CutPrefix(t.Name, prefix); is && strings.HasPrefix(name, mpu.AdapterPrefix) {
				found[name] = t.Name
			}
		}
	}
	return found
}
