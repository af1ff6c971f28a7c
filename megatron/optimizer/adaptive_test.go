package optimizer

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// adaptiveCase is golden/optimizers/adaptive_muon/case.json.
type adaptiveCase struct {
	Steps             int
	LR, Momentum      float64
	WeightDecay       float64 `json:"weight_decay"`
	Beta2, Eps        float64
	NewtonSchulzSteps int      `json:"ns_steps"`
	QKV               [3]int64 // rows of a query group
	Variants          []struct {
		Name, Moment2, Coefficients, Scale string
		Nesterov, Split                    bool
		Extra                              float64
	}
}

// Claim: steps of matrices of every shape and their second moments are those of AdaptiveMuon of NVIDIA's Emerging-Optimizers fd77292
// in float64: of each element, of each row or column, with Q, K and V apart, with the coefficients of nanochat.
func TestAdaptiveMuonAgrees(t *testing.T) {
	var c adaptiveCase
	golden.ReadJSON(t, golden.Dir(t, "optimizers", "adaptive_muon", "case.json"), &c)
	inputs, expected := openTensors(t, "optimizers/adaptive_muon", "inputs"), openTensors(t, "optimizers/adaptive_muon", "expected")
	for i, v := range c.Variants {
		t.Run(v.Name, func(t *testing.T) {
			if n := c.steps(t, i, inputs, expected); n != 4*c.Steps {
				t.Errorf("%d matrices compared", n)
			}
		})
	}
}

func (c *adaptiveCase) steps(t *testing.T, variant int, inputs, expected *safetensors.File) (compared int) {
	d := ref.Open()
	defer d.Close()
	v := c.Variants[variant]
	var params []*mpu.Param
	for _, name := range inputs.Names() {
		if matrix, ok := strings.CutPrefix(name, "init."); ok {
			info, _ := inputs.Info(name)
			p := mpu.Uncut(matrix, mpu.Init{}, info.Shape...)
			if matrix == "qkv" && v.Split {
				p.QKV = c.QKV
			}
			params = append(params, p)
		}
	}
	config := Config{Kind: AdaptiveMuon, AdamBeta1: 0.9, AdamBeta2: 0.95, Muon: MuonConfig{Momentum: c.Momentum, Nesterov: v.Nesterov, Scale: v.Scale, Extra: v.Extra,
		Precision: "high", Coefficients: v.Coefficients, Steps: c.NewtonSchulzSteps, Moment2: v.Moment2, Beta2: c.Beta2, Eps: c.Eps}}
	o := New(d, config, params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for _, p := range params {
		device.WriteSlice(d, p.Value, read32(t, inputs, "init."+p.Name))
	}
	near := func(name string, got []float32, tolerance float64) {
		for i, want := range read32(t, expected, name) {
			if !(math.Abs(float64(got[i]-want)) <= tolerance) {
				t.Errorf("%s, element %d: %g, want %g", name, i, got[i], want)
				return
			}
		}
	}
	for step := 1; step <= c.Steps; step++ {
		for _, p := range params {
			device.WriteSlice(d, p.Grad, read32(t, inputs, fmt.Sprintf("grad.%d.%s", step, p.Name)))
		}
		if r, err := o.Step(StepArgs{LR: c.LR, WeightDecay: c.WeightDecay, Factor: 1}); err != nil || r.Skipped {
			t.Fatal(r, err)
		}
		for _, p := range params {
			compared++
			near(fmt.Sprintf("%s.%d.%s", v.Name, step, p.Name), device.ReadSlice[float32](d, p.Value), 2e-6)
		}
		moments := 0
		for _, s := range o.Stored() {
			if matrix, ok := strings.CutPrefix(s.Name, StoredMoment2); ok {
				moments++
				near(fmt.Sprintf("%s.moment2.%d.%s", v.Name, step, matrix), device.ReadSlice[float32](d, s.Tensor), 2e-6)
			}
		}
		if moments != len(params) {
			t.Errorf("%d moments", moments)
		}
	}
	return compared
}
