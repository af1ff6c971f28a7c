package modelcase

import (
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/hf"
)

// naming is how the case's files name and lay out the model's tensors.
type naming struct {
	family *hf.Mapping // nil: complete, under Megatron's names with global numbers
}

// megatronNaming is what a case calls it.
const megatronNaming = "megatron"

// fromFile is a tensor of the model out of those of a file; nil where the family has no such.
func (n naming) fromFile(file *tensors, global string) ([]float32, error) {
	read := func(name string) ([]float32, []int64, error) {
		info, ok := file.Info(name)
		if !ok {
			return nil, nil, exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", file.Path, name)
		}
		values, err := file.Float32(name)
		return values, info.Shape, err
	}
	if n.family == nil {
		values, _, err := read(global)
		return values, err
	}
	if n.family.GlobalShape(global) == nil {
		return nil, nil
	}
	return hf.ToGlobal(n.family, global, read)
}

// ofFile is a tensor as files name it out of those of the model.
func (n naming) ofFile(name string, get func(global string) ([]float64, error)) ([]float64, error) {
	if n.family == nil {
		return get(name)
	}
	values, _, err := hf.ToHF(n.family, name, get)
	return values, err
}
