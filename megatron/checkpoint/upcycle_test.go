package checkpoint

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// memoryTensors is a Source of tensors in memory.
type memoryTensors struct {
	model  *spec.Model
	dtype  string
	list   []Tensor
	values map[string][]float64
}

func (h *memoryTensors) Info() Info        { return Info{Path: "dense", Model: h.model} }
func (h *memoryTensors) Tensors() []Tensor { return h.list }
func (h *memoryTensors) State() State      { return State{Iteration: 7} }
func (h *memoryTensors) Close() error      { return nil }

func (h *memoryTensors) Read(name string, box mpu.Piece, dst []byte) error {
	uncut := h.values[name]
	if uncut == nil {
		return fmt.Errorf("no tensor %q", name)
	}
	width := int64(len(uncut))
	for _, t := range h.list {
		if t.Name == name {
			width /= t.Shape[0]
		}
	}
	from, columns := int64(0), width
	if len(box.From) == 2 {
		from, columns = box.From[1], box.Size[1]
	}
	var out []float64
	for r := range box.Size[0] {
		out = append(out, uncut[(box.From[0]+r)*width+from:][:columns]...)
	}
	_, _ = safetensors.Encode(dst[:0], h.dtype, out)
	return nil
}

// dense is a model whose elements are all different and exact in bf16's eight bits.
func dense(m *spec.Model, dtype string) *memoryTensors {
	h := &memoryTensors{model: m, dtype: dtype, values: map[string][]float64{}}
	for i, t := range Expected(m) {
		t.Name, t.DType = Model+t.Name, dtype
		h.list = append(h.list, t)
		v := make([]float64, Volume(t.Shape))
		for j := range v {
			v[j] = float64((i*31+j*7)%251 - 125)
		}
		h.values[t.Name] = v
	}
	return h
}

func tinyDense(activation string) *spec.Model {
	return &spec.Model{NumLayers: 2, HiddenSize: 4, FFNHiddenSize: 12, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 2, VocabSize: 5, PaddedVocabSize: 5,
		Position: spec.PositionRope, RotaryBase: 1e4, RotaryPercent: 1, Normalization: spec.RMSNorm, NormEpsilon: 1e-5, Activation: activation, WindowLeft: -1}
}

// megatron is upcycling_utils.py of Megatron-LM d98e8a64 with uncut matrices: an expert's
// tensor out of the MLP's, given as rows.
func megatron(rows [][]float64, tensor string, gated bool, granularity, expert int, scale float64) (out [][]float64) {
	var scaled [][]float64
	for _, row := range rows {
		var r []float64
		for _, v := range row {
			r = append(r, float64(float32(v)*float32(scale)))
		}
		scaled = append(scaled, r)
	}
	split := func(rows [][]float64) [][]float64 { // torch.tensor_split(.., granularity, dim=0)[expert % granularity]
		n := len(rows) / granularity
		return rows[expert%granularity*n:][:n]
	}
	switch {
	case tensor == "linear_fc1" && gated:
		half := len(scaled) / 2
		return append(append(out, split(scaled[:half])...), split(scaled[half:])...)
	case tensor == "linear_fc1":
		return split(scaled)
	}
	for _, r := range scaled { // dim=1
		n := len(r) / granularity
		out = append(out, r[expert%granularity*n:][:n])
	}
	return out
}

// Claim: every element of an upcycled mixture is Megatron's, for gated and other activations,
// granularities, softmaxes before and after the choice, in f32 and bf16, read uncut or in boxes.
func TestUpcyclingIsMegatrons(t *testing.T) {
	for _, c := range []struct {
		activation  string
		granularity int
		pre         bool
		dtype       string
		scale       float64
	}{
		{spec.Swiglu, 1, false, "F32", 1},
		{spec.Swiglu, 3, false, "F32", math.Pow(3, 1.0/3)},
		{spec.Swiglu, 3, true, "BF16", math.Pow(6*3/2.0, 1.0/3)}, // expansion 2, granularity 3: 2·3·3/2
		{spec.SquaredRelu, 2, false, "F32", math.Pow(2, 1.0/3)},
		{spec.GeluErf, 2, true, "F32", math.Sqrt(6 * 2 / 2.0)},
		{spec.GeluErf, 3, false, "BF16", math.Sqrt(3)},
	} {
		name := fmt.Sprintf("%+v", c)
		from := dense(tinyDense(c.activation), c.dtype)
		m := *from.model
		m.Experts = &spec.Experts{Num: 6, FFNHiddenSize: 12 / c.granularity, TopK: 2, ScoreFunction: spec.ScoreSoftmax, PreSoftmax: c.pre, Layers: []bool{false, true}, ExpertBias: true}
		router := func(_ string, out []float32) {
			for i := range out {
				out[i] = float32(i)
			}
		}
		u, err := Upcycle(from, &m, router)
		if err != nil {
			t.Fatal(name, err)
		}
		if u.State().Iteration != 0 || u.Info().Model.Experts == nil || len(u.Tensors()) != len(Expected(&m)) {
			t.Errorf("%s: %+v, %d tensors", name, u.State(), len(u.Tensors()))
		}
		for _, tensor := range u.Tensors() {
			got := readFull(t, u, tensor)
			short := strings.TrimPrefix(tensor.Name, Model)
			want := from.values[tensor.Name]
			switch {
			case strings.HasSuffix(short, "router.weight"): // value[:6/g] row by row, each g times
				for row := range 6 {
					for h := range 4 {
						want = append(want, float64(row/c.granularity*4+h))
					}
				}
			case strings.HasSuffix(short, "router.expert_bias"):
				want = make([]float64, 6)
			case strings.Contains(short, "local_experts"):
				_, rest, _ := strings.Cut(short, "local_experts.")
				var expert int
				var part string
				if _, err := fmt.Sscanf(strings.ReplaceAll(rest, ".", " "), "%d %s", &expert, &part); err != nil {
					t.Fatal(err)
				}
				for _, row := range megatron(asRows(from, Model+"decoder.layers.1.mlp."+part+".weight"), part, m.Gated(), c.granularity, expert, c.scale) {
					want = append(want, row...)
				}
			}
			for i := range want {
				if len(got) != len(want) || math.Abs(got[i]-rounded(want[i], tensor.DType)) > 1e-12 {
					t.Fatalf("%s: %s element %d of %d: %v, want %v", name, tensor.Name, i, len(got), got[min(i, len(got)-1)], want[i])
				}
			}
		}
	}
}

func rounded(v float64, dtype string) float64 {
	raw, _ := safetensors.Encode(nil, dtype, []float64{v})
	out := make([]float64, 1)
	safetensors.Decode(out, dtype, raw)
	return out[0]
}

func asRows(h *memoryTensors, name string) (rows [][]float64) {
	for _, t := range h.list {
		if t.Name == name {
			for r := range t.Shape[0] {
				rows = append(rows, h.values[name][r*t.Shape[1]:][:t.Shape[1]])
			}
		}
	}
	return rows
}

// readFull reads a tensor at once, and again in quarters, which must agree.
func readFull(t *testing.T, src Source, tensor Tensor) []float64 {
	t.Helper()
	read := func(from, size []int64) []float64 {
		raw := make([]byte, Width(tensor.DType)*Volume(size))
		if err := src.Read(tensor.Name, mpu.Piece{From: from, Size: size}, raw); err != nil {
			t.Fatal(err)
		}
		out := make([]float64, Volume(size))
		safetensors.Decode(out, tensor.DType, raw)
		return out
	}
	uncut := read(make([]int64, len(tensor.Shape)), tensor.Shape)
	if len(tensor.Shape) < 2 {
		return uncut
	}
	rows, columns := tensor.Shape[0], tensor.Shape[1]
	for _, r := range [][2]int64{{0, rows / 2}, {rows / 2, rows - rows/2}} {
		for _, c := range [][2]int64{{0, columns / 2}, {columns / 2, columns - columns/2}} {
			if r[1] == 0 || c[1] == 0 {
				continue
			}
			for i, v := range read([]int64{r[0], c[0]}, []int64{r[1], c[1]}) {
				if at := (r[0]+int64(i)/c[1])*columns + c[0] + int64(i)%c[1]; uncut[at] != v {
					t.Fatalf("%s: element %d is %v in a box, %v in the whole", tensor.Name, at, v, uncut[at])
				}
			}
		}
	}
	return uncut
}

// Claim: what cannot become the mixture is refused with every reason.
func TestUpcyclingRefuses(t *testing.T) {
	for says, change := range map[string]func(from, to *spec.Model){
		"hidden size is 4":                          func(_, to *spec.Model) { to.HiddenSize = 8 },
		"not a multiple of the ex":                  func(_, to *spec.Model) { to.Experts.FFNHiddenSize = 5 },
		"not a multiple of the 3":                   func(_, to *spec.Model) { to.Experts.Num = 4 },
		"shared expert":                             func(_, to *spec.Model) { to.Experts.SharedFFN = 4 },
		"layer 0 has no exper":                      func(_, to *spec.Model) { to.FFNHiddenSize = 4 },
		"--num-layers 2 -> 3":                       func(_, to *spec.Model) { to.NumLayers = 3 },
		"activation ":                               func(_, to *spec.Model) { to.Activation = spec.GeluErf },
		"the checkpoint already has experts; leave": func(from, to *spec.Model) { from.Experts = to.Experts },
	} {
		from := dense(tinyDense(spec.Swiglu), "F32")
		to := *from.model
		to.Experts = &spec.Experts{Num: 6, FFNHiddenSize: 4, TopK: 2, ScoreFunction: spec.ScoreSoftmax, Layers: []bool{false, true}}
		change(from.model, &to)
		if _, err := Upcycle(from, &to, nil); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
