package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// optimizerOptions: model 0 means F32; none leaves Model out.
type optimizerOptions struct {
	model      device.DType
	none, skip bool
	momentum   float32
}

func (o optimizerOptions) String() string {
	s := o.model.String() + " model"
	if o.none {
		s = "no model"
	}
	if o.skip {
		s += " skip"
	}
	if o.momentum > 0 {
		s += fmt.Sprintf(" momentum %g", o.momentum)
	}
	return s
}

func optimizerCases() []Case {
	var cases []Case
	for _, n := range []int64{0, 1, 17, 1001, 100003} {
		for _, o := range []optimizerOptions{{none: true}, {model: device.F32}, {model: device.BF16}, {model: device.F16}, {model: device.BF16, skip: true}} {
			cases = append(cases, adamWCase(n, o), sgdCase(n, o))
			o.momentum = 0.9
			cases = append(cases, sgdCase(n, o))
		}
	}
	return cases
}

// optimizerInputs: parameters and gradients of variance 1, whose loss scale is
// 1024, with the model's copy where wanted.
func (e *Env) optimizerInputs(n int64, o optimizerOptions) (param, grad, model, hyper device.Tensor) {
	param = e.Changes(e.In("param", device.F32, n), optimizerTol)
	grad = e.Scaled("grad", device.F32, 0, 1024, n)
	if !o.none {
		// It follows the stored parameter, so it may fall to the next place.
		model = e.Changes(e.In("model", o.model, n), tol(o.model, 1, 4))
	}
	hyper = e.List("hyper", device.F32, 0.01, 0.1, 1-math.Pow(0.9, 3), 1-math.Pow(0.95, 3), 1024, 1.0/1024, float64(flag(o.skip)), 1)
	return param, grad, model, hyper
}

// optimizerTol: a handful of f32 operations on numbers up to 4.
var optimizerTol = tol(device.F32, 1, 4)

func adamWCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.AdamWArgs{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, LRMult: 0.5, WDMult: 2}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.M = e.Changes(e.In("M", device.F32, n), optimizerTol)
		a.V = e.Changes(e.Make("V", device.F32, func(int) float64 { return 0.01 + math.Abs(e.unit()) }, n), optimizerTol)
		return func() { e.Dev.AdamW(a) }
	}
	return Case{device.OpAdamW, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (7*4 + modelBytes(o)), FLOPs: 14 * float64(n)}}
}

func sgdCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.SGDArgs{Mu: o.momentum, LRMult: 2, WDMult: 0.5}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		if o.momentum > 0 {
			a.Momentum = e.Changes(e.In("momentum", device.F32, n), optimizerTol)
		}
		return func() { e.Dev.SGD(a) }
	}
	return Case{device.OpSGD, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (3*4 + modelBytes(o)), FLOPs: 6 * float64(n)}}
}

func modelBytes(o optimizerOptions) float64 {
	if o.none {
		return 0
	}
	return float64(o.model.Size())
}
