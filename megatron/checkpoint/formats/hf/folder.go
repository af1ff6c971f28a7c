package hf

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats/safetensors"
)

// ConfigName is the file that describes the model.
const ConfigName = "config.json"

// Folder is an open Hugging Face folder whose tensors all fit its config.
type Folder struct {
	Config
	Mapping *Mapping
	Weights *safetensors.Folder

	// AllowNonFinite lets weights with NaN or infinity pass; else reading one is an error.
	AllowNonFinite bool

	stored map[string]string // canonical name -> name in the files
}

// derived are tensors that follow from the config and carry no weights: causal
// masks of GPT-2, rotary tables.
var derived = regexp.MustCompile(`(^|\.)(attn\.(bias|masked_bias)|rotary_emb\.inv_freq)$`)

// Open reads config.json and the headers of the weights of dir, and checks that
// each tensor the model needs is there in its shape and that no other is.
func Open(dir string) (*Folder, error) {
	config, err := ReadConfig(filepath.Join(dir, ConfigName))
	if err != nil {
		return nil, err
	}
	mp, err := NewMapping(config.Model, config.Family)
	if err != nil {
		return nil, err
	}
	weights, err := safetensors.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{Config: *config, Mapping: mp, Weights: weights, stored: map[string]string{}}
	if err := f.check(); err != nil {
		_ = weights.Close() // the first error counts
		return nil, err
	}
	return f, nil
}

// Close closes the weights.
func (f *Folder) Close() error { return f.Weights.Close() }

// check finds every needed tensor, under its name or, in files of the bare
// model, without the name's first part.
func (f *Folder) check() error {
	used := map[string]bool{}
	for _, src := range f.Mapping.Sources() {
		name := src.Name
		info, ok := f.Weights.Info(name)
		if !ok {
			if _, bare, found := strings.Cut(name, "."); found && !strings.HasPrefix(name, "lm_head.") {
				name = bare
				info, ok = f.Weights.Info(bare)
			}
		}
		if !ok {
			return fault.Errorf(fault.BadData, "%s: %s needs the tensor %q, which no file of the folder has", f.Weights.Path, ConfigName, src.Name)
		}
		if !slices.Equal(info.Shape, src.Shape) {
			return fault.Errorf(fault.BadData, "%s: tensor %q has the shape %v, by %s it is %v", f.Weights.File(name).Path, name, info.Shape, ConfigName, src.Shape)
		}
		f.stored[src.Name] = name
		used[name] = true
	}
	for _, name := range f.Weights.Names() {
		tiedHead := f.Model.Tied && name == "lm_head.weight"
		if !used[name] && !tiedHead && !derived.MatchString(name) {
			return fault.Errorf(fault.BadData, "%s: tensor %q has no place in the model of %s; leaving it out would change the results", f.Weights.File(name).Path, name, ConfigName)
		}
	}
	return nil
}

// Tensor returns a Megatron tensor, row-major in Mapping.GlobalShape.
func (f *Folder) Tensor(global string) ([]float32, error) {
	return ToGlobal(f.Mapping, global, func(name string) ([]float32, []int64, error) {
		stored := f.stored[name]
		values, err := f.Weights.Float32(stored)
		if err != nil {
			return nil, nil, err
		}
		if n, first := nonFinite(values); n > 0 && !f.AllowNonFinite {
			return nil, nil, fault.Errorf(fault.BadData, "%s: tensor %q holds %d values that are not finite, the first at element %d",
				f.Weights.File(stored).Path, stored, n, first)
		}
		info, _ := f.Weights.Info(stored)
		return values, info.Shape, nil
	})
}

func nonFinite(values []float32) (count, first int) {
	for i, v := range values {
		if math.IsInf(float64(v), 0) || v != v {
			if count == 0 {
				first = i
			}
			count++
		}
	}
	return count, first
}
