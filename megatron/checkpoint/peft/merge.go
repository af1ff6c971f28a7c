package peft

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Merge shows the weights of src with the sums of the adapter f in them. Adapter tensors and
// weights are taken as f32, W + Scale·B·A, for DoRA scaled by row, is made in f32, and is rounded
// once to the weight's type, to nearest even. Tensors without an adapter keep their bytes; the
// optimizer's are left out.
func Merge(src checkpoint.Source, f *Folder) checkpoint.Source {
	return newMerged(src, f.Adapters, f.Values)
}

// MergeOwn is Merge of a checkpoint of a run that trained an adapter, with that one; others are
// shown as they are.
func MergeOwn(src checkpoint.Source) checkpoint.Source {
	adapters := src.Info().Model.Adapters
	if len(adapters) == 0 {
		return src
	}
	stored, tensors := adapterNames(src), map[string]checkpoint.Tensor{}
	for _, t := range src.Tensors() {
		tensors[t.Name] = t
	}
	return newMerged(src, adapters, func(name string) ([]float32, error) {
		t := tensors[stored[name]]
		if t.Name == "" {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %s of its adapter is missing", src.Info().Path, name)
		}
		return readAll(src, t.Name, t.DType, t.Shape)
	})
}

// merged is a source whose weights have adapters' sums in them.
type merged struct {
	checkpoint.Source
	adapters map[string][]spec.Adapter // by the name of the weight
	values   func(name string) ([]float32, error)
	tensors  map[string]checkpoint.Tensor
	list     []checkpoint.Tensor

	mu   sync.Mutex
	made string // name of the tensor that raw holds
	raw  []byte
}

func newMerged(src checkpoint.Source, adapters []spec.Adapter, values func(string) ([]float32, error)) *merged {
	m := &merged{Source: src, adapters: map[string][]spec.Adapter{}, values: values, tensors: map[string]checkpoint.Tensor{}}
	for _, a := range adapters {
		name := checkpoint.Model + a.Linear + ".weight"
		m.adapters[name] = append(m.adapters[name], a)
	}
	for _, t := range src.Tensors() {
		name, is := strings.CutPrefix(t.Name, checkpoint.Model)
		if is && !strings.HasPrefix(name, mpu.AdapterPrefix) {
			m.list, m.tensors[t.Name] = append(m.list, t), t
		}
	}
	return m
}

// Info is that of the source, of a model without adapters.
func (m *merged) Info() checkpoint.Info {
	info := m.Source.Info()
	model := *info.Model
	model.Adapters = nil
	info.Model = &model
	return info
}

// State is that of the source, without what says that the model has adapters.
func (m *merged) State() checkpoint.State {
	s := m.Source.State()
	var config, model map[string]json.RawMessage
	if json.Unmarshal(s.Config, &config) != nil || json.Unmarshal(config["Model"], &model) != nil {
		return s
	}
	delete(model, "Adapters")
	delete(config, "Adapter")
	text, err := json.Marshal(model)
	if err != nil {
		return s
	}
	config["Model"] = text
	if text, err := json.Marshal(config); err == nil {
		s.Config = text
	}
	return s
}

// Tensors lists the weights.
func (m *merged) Tensors() []checkpoint.Tensor { return m.list }

// Read fills dst with a box of a weight.
func (m *merged) Read(name string, box mpu.Piece, dst []byte) error {
	if m.adapters[name] == nil {
		return m.Source.Read(name, box, dst)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made != name {
		m.made = ""
		raw, err := m.make(m.tensors[name])
		if err != nil {
			return fmt.Errorf("merging %s: %w", strings.TrimPrefix(name, checkpoint.Model), err)
		}
		m.made, m.raw = name, raw
	}
	t := m.tensors[name]
	width := checkpoint.Width(t.DType)
	box.Local = 0
	box.Runs(t.Shape, func(at, local, n int64) { copy(dst[local*width:(local+n)*width], m.raw[at*width:]) })
	return nil
}

// make is a weight [out, in] with its adapters' sums.
func (m *merged) make(t checkpoint.Tensor) ([]byte, error) {
	weight, err := readAll(m.Source, t.Name, t.DType, t.Shape)
	if err != nil {
		return nil, err
	}
	for _, a := range m.adapters[t.Name] {
		if err := m.add(weight, t.Shape[1], a); err != nil {
			return nil, err
		}
	}
	raw, ok := safetensors.Encode(make([]byte, 0, int64(len(weight))*checkpoint.Width(t.DType)), t.DType, weight)
	if !ok {
		return nil, exitcode.Errorf(exitcode.BadData, "the weight is %s; must be F32, BF16, F16 or F64", t.DType)
	}
	return raw, nil
}

// add adds an adapter to its rows of a weight, each `in` long.
func (m *merged) add(weight []float32, in int64, a spec.Adapter) error {
	name := mpu.AdapterPrefix + a.Module
	down, err := m.values(name + ".lora_A.weight")
	if err != nil {
		return err
	}
	up, err := m.values(name + ".lora_B.weight")
	if err != nil {
		return err
	}
	var magnitude []float32
	if a.Magnitude {
		if magnitude, err = m.values(name + ".lora_magnitude_vector"); err != nil {
			return err
		}
	}
	r := int64(a.Rank)
	sums := make([]float32, in)
	for _, run := range a.Rows {
		for i := range run[2] {
			row, theirs := weight[(run[0]+i)*in:(run[0]+i+1)*in], run[1]+i
			clear(sums)
			for k, b := range up[theirs*r : (theirs+1)*r] {
				for j, v := range down[int64(k)*in : (int64(k)+1)*in] {
					sums[j] = float32(float64(b)*float64(v) + float64(sums[j])) // one rounding, as a fused multiply-add
				}
			}
			for j := range row {
				row[j] += float32(sums[j] * float32(a.Scale)) // rounded before the sum, on every machine
			}
			if magnitude != nil {
				scaleRow(row, magnitude[theirs])
			}
		}
	}
	return nil
}

// scaleRow gives a row the norm m.
func scaleRow(row []float32, m float32) {
	squares := 0.0
	for _, v := range row {
		squares += float64(v) * float64(v)
	}
	norm := float32(math.Sqrt(squares))
	if norm == 0 {
		return
	}
	for j := range row {
		row[j] *= m / norm
	}
}
