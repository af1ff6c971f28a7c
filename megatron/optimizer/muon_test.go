package optimizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// muonVariant is one of golden/muon/case.json.
type muonVariant struct {
	Name         string
	LR           float64
	Momentum     float64
	WeightDecay  float64 `json:"weight_decay"`
	Nesterov     bool
	Coefficients string
	Steps        int
	Scale        string
	Extra        float64
	SplitQKV     []int64 `json:"split_qkv"`
	Tolerance    float64 `json:"tolerance_abs_f32"`
}

// config is the variant's in our words; torch.optim.Muon has its own names of scales.
func (v *muonVariant) config() Config {
	c := MuonConfig{Momentum: v.Momentum, Nesterov: v.Nesterov, Scale: v.Scale, Extra: v.Extra, Precision: "high", Coefficients: v.Coefficients, Steps: v.Steps}
	switch v.Scale {
	case "original":
		c.Scale = ScaleShape
	case "match_rms_adamw":
		c.Scale, c.Extra = ScaleSpectral, 0.2
	case "spectral_unclamped":
		c.Scale = ScaleUnitRMS
	}
	return Config{Kind: Muon, Muon: c, AdamBeta1: 0.9, AdamBeta2: 0.95}
}

// Claim: six steps of matrices of many shapes, of gradients of zero and of 1e-9, are those of
// NVIDIA's Emerging-Optimizers fd77292 and torch.optim.Muon 2.15 in float64, with every set
// of coefficients, scale and way to split.
func TestMuonAgrees(t *testing.T) {
	var c struct {
		Variants []muonVariant
		Sets     map[string][]coefficients `json:"coefficient_sets"`
	}
	golden.ReadJSON(t, golden.Dir(t, "muon", "case.json"), &c)
	if len(c.Variants) < 12 {
		t.Fatalf("%d variants", len(c.Variants))
	}
	for name, steps := range c.Sets {
		if !slices.Equal(newtonSchulzSets[name].steps, steps) {
			t.Errorf("%s: %v, want %v", name, newtonSchulzSets[name].steps, steps)
		}
	}
	inputs, expected := openTensors(t, "muon", "inputs"), openTensors(t, "muon", "expected")
	for _, v := range c.Variants {
		t.Run(v.Name, func(t *testing.T) {
			if n := muonSteps(t, v, inputs, expected); n < 8 {
				t.Errorf("%d tensors compared", n)
			}
		})
	}
}

// openTensors opens a file of a folder of golden cases.
func openTensors(t *testing.T, folder, name string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(golden.Dir(t, folder, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// muonSteps takes a variant's steps and returns how many tensors it compared.
func muonSteps(t *testing.T, v muonVariant, inputs, expected *safetensors.File) (compared int) {
	d := ref.Open()
	defer d.Close()
	var params []*mpu.Param
	for _, name := range inputs.Names() {
		if matrix, ok := strings.CutPrefix(name, "init."); ok {
			info, _ := inputs.Info(name)
			p := mpu.Uncut(matrix, mpu.Init{}, info.Shape...)
			if matrix == "qkv" && v.SplitQKV != nil {
				p.QKV = [3]int64(v.SplitQKV)
			}
			params = append(params, p)
		}
	}
	o := New(d, v.config(), params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for _, p := range params {
		device.WriteSlice(d, p.Value, read32(t, inputs, "init."+p.Name))
	}
	for step := range 6 {
		for _, p := range params {
			device.WriteSlice(d, p.Grad, read32(t, inputs, fmt.Sprintf("grad.%d.%s", step+1, p.Name)))
		}
		if r, err := o.Step(StepArgs{LR: v.LR, WeightDecay: v.WeightDecay, Factor: 1}); err != nil || r.Skipped {
			t.Fatal(r, err)
		}
		for _, p := range params {
			name := fmt.Sprintf("%s.%d.%s", v.Name, step+1, p.Name)
			if _, ok := expected.Info(name); !ok || strings.HasPrefix(v.Name, "torch-") && p.Name == "tiny_gradient" {
				continue // torch divides by 1e-7 at least, Megatron by 1e-15
			}
			compared++
			for i, want := range read32(t, expected, name) {
				if got := device.ReadSlice[float32](d, p.Value)[i]; !(math.Abs(float64(got-want)) <= v.Tolerance) {
					t.Errorf("%s, element %d: %g, want %g", name, i, got, want)
					break
				}
			}
		}
	}
	return compared
}

func read32(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	values, err := f.Float32(name)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// Claim: with --muon-per-head each head's rows of queries, keys and values step as a weight of their own would, whose step is compared with other
// programs'.
func TestMuonPerHeadIsMuonOfEachHead(t *testing.T) {
	const groups, queries, channels, width = 2, 3, 4, 24 // heads of queries of a group
	const heads = groups * (queries + 2)
	d := ref.Open()
	defer d.Close()
	c := Config{Kind: Muon, Muon: MuonConfig{Momentum: 0.9, Nesterov: true, Scale: ScaleShape, Extra: 0.3, Precision: "high", Coefficients: "quintic", Steps: 5, PerHead: true}}
	fused := mpu.Uncut("qkv", mpu.Init{}, heads*channels, width)
	fused.QKV, fused.Head = [3]int64{queries * channels, channels, channels}, channels
	params := []*mpu.Param{fused, mpu.Uncut("proj", mpu.Init{}, width, heads*channels)}
	for i := range heads {
		params = append(params, mpu.Uncut(fmt.Sprint("head", i), mpu.Init{}, channels, width))
	}
	o := New(d, c, params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for step := range 3 {
		values := make([]float32, fused.Len())
		for i := range values {
			values[i] = float32(math.Sin(float64(i*i + 7*step)))
		}
		device.WriteSlice(d, fused.Grad, values)
		for i, p := range params[2:] {
			device.WriteSlice(d, p.Grad, values[i*channels*width:][:channels*width])
		}
		if _, err := o.Step(StepArgs{LR: 0.1, Factor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	got, moved := device.ReadSlice[float32](d, fused.Value), 0.0
	for i, p := range params[2:] {
		for j, want := range device.ReadSlice[float32](d, p.Value) {
			moved += math.Abs(float64(want))
			if at := i*channels*width + j; got[at] != want {
				t.Fatalf("head %d, element %d: %g, want %g", i, j, got[at], want)
			}
		}
	}
	if moved == 0 {
		t.Error("nothing moved")
	}
}
