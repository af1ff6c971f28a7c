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
// once to the weight's type, to nearest even. Weights that f has in full replace the base's, rounded to
// their type. Tensors without an adapter keep their bytes; the optimizer's are left out.
func Merge(src checkpoint.Source, f *Folder) checkpoint.Source {
	return newMerged(f.over(src), f.Adapters, f.Values)
}

// MergeOwn is Merge of a checkpoint of a run that trained an adapter, with that one; others are
// shown as they are.
func MergeOwn(src checkpoint.Source) checkpoint.Source {
	adapters := src.Info().Model.Adapters
	if len(adapters) == 0 {
		return src
	}
	return newMerged(src, adapters, namedReader(src))
}

// over shows src with the weights that f has in full.
func (f *Folder) over(src checkpoint.Source) checkpoint.Source {
	if len(f.replacing) == 0 {
		return src
	}
	o := &replaced{Source: src, folder: f, dtypes: map[string][2]string{}}
	theirs := map[string]string{}
	for _, t := range f.list {
		theirs[t.Name] = t.DType
	}
	for _, t := range src.Tensors() {
		if name, is := strings.CutPrefix(t.Name, checkpoint.Model); is && f.Holds(name) {
			o.dtypes[t.Name] = [2]string{t.DType, theirs[t.Name]}
		}
	}
	return o
}

// replaced is a source of which an adapter has some weights.
type replaced struct {
	checkpoint.Source
	folder *Folder
	dtypes map[string][2]string // of these weights: as they are shown, and as the adapter has them
}

// Read fills dst with a box of a weight.
func (r *replaced) Read(name string, box mpu.Piece, dst []byte) error {
	types, is := r.dtypes[name]
	if !is {
		return r.Source.Read(name, box, dst)
	}
	raw := make([]byte, box.Len()*checkpoint.Width(types[1]))
	if err := r.folder.Read(name, box, raw); err != nil {
		return err
	}
	return checkpoint.Convert(dst, types[0], raw, types[1])
}

// onto is an adapter on one weight of a checkpoint: of experts, which it keeps apart, that of one.
type onto struct {
	spec.Adapter
	expert int64
}

// weightsOf are the names of the weights that an adapter is on, by expert.
func weightsOf(a spec.Adapter) (names []string) {
	if a.Experts == 0 {
		return []string{checkpoint.Model + a.Linear + ".weight"}
	}
	at := strings.LastIndexByte(a.Linear, '.')
	for e := range a.Experts {
		names = append(names, fmt.Sprintf("%s%s.local_experts.%d%s.weight", checkpoint.Model, a.Linear[:at], e, a.Linear[at:]))
	}
	return names
}

// merged is a source whose weights have adapters' sums in them.
type merged struct {
	checkpoint.Source
	adapters map[string][]onto // by the name of the weight
	values   func(name string) ([]float32, error)
	tensors  map[string]checkpoint.Tensor
	list     []checkpoint.Tensor

	mixture string               // whose values are kept, since every expert asks for them
	kept    map[string][]float32 // by name

	mu   sync.Mutex
	made string // name of the tensor that raw holds
	raw  []byte
}

func newMerged(src checkpoint.Source, adapters []spec.Adapter, values func(string) ([]float32, error)) *merged {
	m := &merged{Source: src, adapters: map[string][]onto{}, values: values, tensors: map[string]checkpoint.Tensor{}}
	for _, a := range adapters {
		for e, name := range weightsOf(a) {
			m.adapters[name] = append(m.adapters[name], onto{a, int64(e)})
		}
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
	model.Adapters, model.Retrained = nil, nil
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
	delete(model, "Retrained")
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
		return nil, exitcode.Errorf(exitcode.BadData, "the base weight is %s; it must be F32, BF16, F16 or F64", t.DType)
	}
	return raw, nil
}

// factors are A [rank, in] and B [out, rank] of an adapter of a weight [out, in], with the stretches of
// rows that get it.
func (m *merged) factors(a onto) (down, up []float32, rows [][3]int64, err error) {
	name, r := mpu.AdapterPrefix+a.Module, int64(a.Rank)
	first, second := name+".lora_A.weight", name+".lora_B.weight"
	if a.Table { // the weight is [ids, hidden]: A and B are exchanged
		first, second = name+".lora_embedding_B", name+".lora_embedding_A"
	}
	values := m.values
	if a.Experts > 0 {
		values = m.keeping(a.Module)
	}
	if down, err = values(first); err == nil {
		up, err = values(second)
	}
	switch {
	case err != nil:
		return nil, nil, nil, err
	case a.Table:
		turned := make([]float32, len(down))
		for i, x := range down {
			turned[int64(i)%r*a.Out+int64(i)/r] = x
		}
		return turned, up, [][3]int64{{0, 0, a.In}}, nil
	case a.Experts > 0:
		return down[a.expert*r*a.In:][:r*a.In], up[a.expert*a.Out*r:][:a.Out*r], a.Rows, nil
	}
	return down, up, a.Rows, nil
}

// keeping are values that stay until another mixture is asked for.
func (m *merged) keeping(mixture string) func(name string) ([]float32, error) {
	if m.mixture != mixture {
		m.mixture, m.kept = mixture, map[string][]float32{}
	}
	return func(name string) (list []float32, err error) {
		if m.kept[name] == nil {
			m.kept[name], err = m.values(name)
		}
		return m.kept[name], err
	}
}

// add adds an adapter to its rows of a weight, each `in` long.
func (m *merged) add(weight []float32, in int64, a onto) error {
	down, up, rows, err := m.factors(a)
	if err != nil {
		return err
	}
	var magnitude []float32
	if a.Magnitude {
		if magnitude, err = m.values(mpu.AdapterPrefix + a.Module + ".lora_magnitude_vector"); err != nil {
			return err
		}
	}
	r := int64(a.Rank)
	sums := make([]float32, in)
	for _, run := range rows {
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
