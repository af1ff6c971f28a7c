package hf

import (
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// Tensor reads a Megatron tensor the slow way, element by element through
// ToGlobal: the check of Gather.
func (f *Folder) Tensor(global string) ([]float32, error) {
	return ToGlobal(f.Mapping, global, f.theirs)
}

// theirs is one of the folder's tensors as float32.
func (f *Folder) theirs(name string) ([]float32, []int64, error) {
	dtype, shape, _ := f.Info(name)
	raw := make([]byte, elements(shape)*checkpoint.Width(dtype))
	if err := f.ReadAt(name, raw, 0); err != nil {
		return nil, nil, err
	}
	return floats(dtype, raw), shape, nil
}

func floats(dtype string, raw []byte) []float32 {
	wide := make([]float64, len(raw)/int(checkpoint.Width(dtype)))
	safetensors.Decode(wide, dtype, raw)
	out := make([]float32, len(wide))
	for i, v := range wide {
		out[i] = float32(v)
	}
	return out
}
