package compare

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// side is a Source in memory.
type side struct {
	checkpoint.Source
	list   []checkpoint.Tensor
	values map[string][]float64
	state  checkpoint.State
}

func (h *side) Info() checkpoint.Info        { return checkpoint.Info{Path: "memory"} }
func (h *side) Tensors() []checkpoint.Tensor { return h.list }
func (h *side) State() checkpoint.State      { return h.state }
func (h *side) add(name, dtype string, shape []int64, values ...float64) *side {
	h.list = append(h.list, checkpoint.Tensor{Name: name, DType: dtype, Shape: shape})
	if h.values == nil {
		h.values = map[string][]float64{}
	}
	h.values[name] = values
	return h
}

func (h *side) Read(name string, box mpu.Piece, dst []byte) error {
	i := slices.IndexFunc(h.list, func(t checkpoint.Tensor) bool { return t.Name == name })
	row := box.Len() / box.Size[0]
	at := box.From[0] * row
	_, _ = safetensors.Encode(dst[:0], h.list[i].DType, h.values[name][at:at+box.Len()])
	return nil
}

// What is changed is found and nothing else: one element with its index, a tensor
// of one side, another shape; equal values in another type are equal; NaN meets NaN.
func TestTensors(t *testing.T) {
	nan := math.NaN()
	a := new(side).add("same", "F32", []int64{2, 2}, 1, 2, 3, nan).add("moved", "F32", []int64{2, 3}, 1, 2, 3, 4, 5, 6).
		add("typed", "F32", []int64{2}, 1, 0.5).add("gone", "F32", []int64{1}, 1).add("shape", "F32", []int64{4}, 1, 2, 3, 4)
	b := new(side).add("same", "F32", []int64{2, 2}, 1, 2, 3, nan).add("moved", "F32", []int64{2, 3}, 1, 2, 3, 4, 5.5, nan).
		add("typed", "BF16", []int64{2}, 1, 0.5).add("shape", "F32", []int64{2, 2}, 1, 2, 3, 4).add("new", "F32", []int64{1}, 1)
	list, err := Tensors(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var differ []string
	for _, row := range list {
		if !row.Equal() {
			differ = append(differ, row.Name)
		}
	}
	if want := []string{"moved", "gone", "shape", "new"}; !slices.Equal(differ, want) {
		t.Errorf("differ: %v, want %v", differ, want)
	}
	m := list[1]
	if m.Different != 2 || m.MaxAbs != 0.5 || m.MaxRel != 0.1 || !slices.Equal(m.First, []int64{1, 1}) || m.FirstA != "5" || m.FirstB != "5.5" || m.NaNB != 1 {
		t.Errorf("moved: %+v", m)
	}
	if list[0].NormA != math.Sqrt(14) || list[0].NaNA != 1 {
		t.Errorf("same: %+v", list[0])
	}
	list, err = Tensors(a, b, Options{Rel: 0.2})
	if err != nil || list[1].Different != 1 {
		t.Errorf("with a tolerance %d elements of moved differ, 1 (the NaN) should; %v", list[1].Different, err)
	}
}

// A state's values are compared leaf by leaf.
func TestState(t *testing.T) {
	a := checkpoint.State{Iteration: 5, Scheduler: json.RawMessage(`{"max_lr":0.1,"num_steps":10}`)}
	b := checkpoint.State{Iteration: 6, Scheduler: json.RawMessage(`{"max_lr":0.1,"num_steps":12}`), Scaler: json.RawMessage(`{"scale":4}`)}
	want := []Setting{{"iteration", "5", "6"}, {"scaler.scale", "-", "4"}, {"scheduler.num_steps", "10", "12"}}
	if got := State(a, b); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
