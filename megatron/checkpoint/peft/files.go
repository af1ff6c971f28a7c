package peft

import (
	"strings"

	"monotron/megatron/spec"
	"monotron/mpu"
)

// tensor is one of an adapter: as ours, and as PEFT's files keep it.
type tensor struct {
	name  string  // ours, of a parameter
	shape []int64 // of it
	key   string  // in the file
	kept  []int64 // shape there
	turn  func(i int64) int64
}

// turned is where element i of ours lies there.
func (t *tensor) turned(i int64) int64 {
	if t.turn == nil {
		return i
	}
	return t.turn(i)
}

// tensorsOf lists the tensors of adapters.
func tensorsOf(adapters []spec.Adapter) (list []tensor) {
	nested := map[string]bool{} // PEFT wraps gate_up_proj first where both of a layer's are adapted
	for _, a := range adapters {
		if dir, is := strings.CutSuffix(a.Module, ".down_proj"); is && a.Experts > 0 {
			nested[dir] = true
		}
	}
	for _, a := range adapters {
		name, r := mpu.AdapterPrefix+a.Module, int64(a.Rank)
		switch {
		case a.Table:
			list = append(list, tensor{name: name + ".lora_embedding_A", shape: []int64{a.In, r}, key: name + ".lora_embedding_A", kept: []int64{r, a.In},
				turn: func(i int64) int64 { return i%r*a.In + i/r }},
				same(name+".lora_embedding_B", a.Out, r))
		case a.Experts > 0:
			list = append(list, ofExperts(a, nested)...)
		default:
			list = append(list, same(name+".lora_A.weight", r, a.In), same(name+".lora_B.weight", a.Out, r))
		}
		if a.Magnitude {
			list = append(list, same(name+".lora_magnitude_vector", a.Out))
		}
	}
	return list
}

// same is a tensor that files keep as it is.
func same(name string, shape ...int64) tensor {
	return tensor{name: name, shape: shape, key: name, kept: shape}
}

// ofExperts are A [E, rank, in] and B [E, out, rank] of a mixture's weight: PEFT has A [E·rank, in], and
// B [out, rank·E] with the experts of a rank next to each other.
func ofExperts(a spec.Adapter, nested map[string]bool) []tensor {
	name, r := mpu.AdapterPrefix+a.Module, int64(a.Rank)
	dir := a.Module[:strings.LastIndexByte(a.Module, '.')]
	key := mpu.AdapterPrefix + dir
	if nested[dir] && !strings.HasSuffix(a.Module, ".down_proj") {
		key += ".base_layer"
	}
	return []tensor{{name: name + ".lora_A.weight", shape: []int64{a.Experts, r, a.In}, key: key + ".lora_A.weight", kept: []int64{a.Experts * r, a.In}},
		{name: name + ".lora_B.weight", shape: []int64{a.Experts, a.Out, r}, key: key + ".lora_B.weight", kept: []int64{a.Out, r * a.Experts},
			turn: func(i int64) int64 {
				expert, out, k := i/(a.Out*r), i/r%a.Out, i%r
				return (out*r+k)*a.Experts + expert
			}}}
}
