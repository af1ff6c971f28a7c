package optimizer

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// scheduleFreeCase is golden/optimizers/schedule_free_adamw/case.json.
type scheduleFreeCase struct {
	Steps, Warmup int
	LR, Eps       float64
	Betas         [2]float64
	Variants      []struct {
		Name            string
		R, Power, Decay float64
	}
}

// Claim: the weights at which gradients are taken, those between steps and z are schedulefree 1.4.1's, with a warm-up, weight decay and other powers;
// and of a step that is skipped nothing remains but the weights between steps.
func TestScheduleFreeAgrees(t *testing.T) {
	var c scheduleFreeCase
	golden.ReadJSON(t, golden.Dir(t, "optimizers", "schedule_free_adamw", "case.json"), &c)
	inputs, expected := openTensors(t, "optimizers/schedule_free_adamw", "inputs"), openTensors(t, "optimizers/schedule_free_adamw", "expected")
	for i, v := range c.Variants {
		onDevices(t, " "+v.Name, func(t *testing.T, d *device.Device) { c.steps(t, d, i, inputs, expected) })
	}
}

func (c *scheduleFreeCase) steps(t *testing.T, d *device.Device, variant int, inputs, expected *safetensors.File) {
	v := c.Variants[variant]
	var params []*mpu.Param
	for _, name := range inputs.Names() {
		if tensor, ok := strings.CutPrefix(name, "init."); ok {
			info, _ := inputs.Info(name)
			params = append(params, mpu.Uncut(tensor, mpu.Init{}, info.Shape...))
			params[len(params)-1].NoDecay = false
		}
	}
	config := Config{Kind: ScheduleFree, AdamBeta1: c.Betas[0], AdamBeta2: c.Betas[1], AdamEps: c.Eps, AveragePower: v.R, AverageLRPower: v.Power}
	o := New(d, config, params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for _, p := range params {
		device.WriteSlice(d, p.Value, read32(t, inputs, "init."+p.Name))
	}
	o.AdoptValues(func(string) bool { return true })
	near := func(what, name string, step int, got []float32) {
		for i, want := range read32(t, expected, fmt.Sprintf("%s.%s.%d.%s", v.Name, what, step, name)) {
			if !(math.Abs(float64(got[i]-want)) <= 2e-6) {
				t.Errorf("step %d: %s of %s, element %d: %g, want %g", step, what, name, i, got[i], want)
				return
			}
		}
	}
	take := func(step int, factor float64, scale float32) Result {
		if err := o.ZeroGrad(); err != nil {
			t.Fatal(err)
		}
		for _, p := range params {
			near("y", p.Name, step, device.ReadSlice[float32](d, p.Value))
			g := read32(t, inputs, fmt.Sprintf("grad.%d.%s", step, p.Name))
			for i := range g {
				g[i] *= scale
			}
			device.WriteSlice(d, p.Grad, g)
		}
		r, err := o.Step(StepArgs{LR: c.LR * min(1, float64(step)/float64(c.Warmup)), WeightDecay: v.Decay, Factor: factor})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for step := 1; step <= c.Steps; step++ {
		if step == 3 {
			if r := take(step, 1, float32(math.Inf(1))); !r.Skipped {
				t.Fatalf("%+v", r)
			}
			for _, p := range params {
				near("x", p.Name, step-1, device.ReadSlice[float32](d, p.Value))
			}
		}
		if r := take(step, 4, 4); r.Skipped {
			t.Fatalf("%+v", r)
		}
		for _, p := range params {
			near("x", p.Name, step, device.ReadSlice[float32](d, p.Value))
		}
		for _, s := range o.Stored() {
			if tensor, ok := strings.CutPrefix(s.Name, StoredSteps); ok {
				near("z", tensor, step, device.ReadSlice[float32](d, s.Tensor))
			}
		}
	}
}
