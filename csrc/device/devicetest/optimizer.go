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
	cut        bool // into segments of many lengths, with gaps
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
	if o.cut {
		s += " in segments"
	}
	return s
}

func optimizerCases() []Case {
	var cases []Case
	for _, n := range []int64{0, 1, 17, 1001, 100003} {
		for _, d := range valueTypes {
			cases = append(cases, blendCase(n, d))
		}
		for _, o := range []optimizerOptions{{none: true}, {model: device.F32}, {model: device.BF16}, {model: device.F16}, {model: device.BF16, skip: true}} {
			cases = append(cases, adamWCase(n, o), adamW8Case(n, o), scheduleFreeCase(n, o), sgdCase(n, o), lionCase(n, o))
			o.momentum = 0.9
			cases = append(cases, sgdCase(n, o))
		}
		for _, o := range []optimizerOptions{{none: true, cut: true}, {model: device.BF16, cut: true}, {model: device.F16, cut: true, skip: true}} {
			cases = append(cases, adamWCase(n, o), adamW8Case(n, o), scheduleFreeCase(n, o), sgdCase(n, o), lionCase(n, o))
		}
	}
	return cases
}

// segments cuts n elements: lengths from none to a few blocks of a kernel, most beginning
// at no round number, some behind a gap.
func (e *Env) segments(n int64) device.Tensor {
	var at []float64
	for from := int64(0); len(at) == 0 || from < n; {
		to := min(n, from+[]int64{0, 1, 3, 64, 5000, 129, 20000, 2, 4096}[len(at)/2%9])
		at = append(at, float64(from), float64(to))
		from = to + []int64{0, 0, 5, 64, 1}[len(at)/2%5]
	}
	return e.List("segments", device.I64, at...).Reshape(int64(len(at)/2), 2)
}

// rated cuts the buffer where it is wanted; each segment has multipliers of its own, one that
// is not cut a learning rate's and a weight decay's.
func (e *Env) rated(n int64, o optimizerOptions, lr, wd float64) (segments, mults device.Tensor) {
	count := int64(1)
	if o.cut {
		segments = e.segments(n)
		count = segments.Shape[0]
	}
	return segments, e.Make("mults", device.F32, func(i int) float64 {
		if i%2 == 0 {
			return lr * float64(i/2%3+1)
		}
		return wd * float64((i/2+1)%3) // once, twice, none
	}, count, 2)
}

// optimizerInputs: parameters and gradients of variance 1, whose loss scale is
// 1024, with the model's copy where wanted.
func (e *Env) optimizerInputs(n int64, o optimizerOptions) (param, grad, model, hyper device.Tensor) {
	param = e.Changes(e.In("param", device.F32, n), optimizerTol)
	grad = e.Scaled("grad", device.F32, 0, 1024, n)
	if !o.none {
		// It follows the stored parameter, so it may round to the next value.
		model = e.Changes(e.In("model", o.model, n), tol(o.model, 1, 4))
	}
	hyper = e.List("hyper", device.F32, 0.01, 0.1, 1-math.Pow(0.9, 3), 1-math.Pow(0.95, 3), 1024, 1.0/1024, float64(flag(o.skip)), 1)
	return param, grad, model, hyper
}

// optimizerTol: a handful of f32 operations on numbers up to 4.
var optimizerTol = tol(device.F32, 1, 4)

func adamWCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.AdamWArgs{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.Segments, a.Mults = e.rated(n, o, 0.5, 2)
		a.M = e.Changes(e.In("M", device.F32, n), optimizerTol)
		a.V = e.Changes(e.Make("V", device.F32, func(int) float64 { return 0.01 + math.Abs(e.unit()) }, n), optimizerTol)
		return func() { e.Dev.AdamW(a) }
	}
	return Case{device.OpAdamW, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (7*4 + modelBytes(o)), FLOPs: 14 * float64(n)}}
}

func sgdCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.SGDArgs{Mu: o.momentum}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.Segments, a.Mults = e.rated(n, o, 2, 0.5)
		if o.momentum > 0 {
			a.Momentum = e.Changes(e.In("momentum", device.F32, n), optimizerTol)
		}
		return func() { e.Dev.SGD(a) }
	}
	return Case{device.OpSGD, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (3*4 + modelBytes(o)), FLOPs: 6 * float64(n)}}
}

// lionCase keeps the mean of gradients off 0, where rounding has its sign: it is M's, or where
// M is 0 the gradient's.
func lionCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.LionArgs{Beta1: 0.95, Beta2: 0.98}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.Segments, a.Mults = e.rated(n, o, 0.5, 2)
		a.M = e.Changes(e.Make("M", device.F32, func(i int) float64 {
			return float64(i%3-1) * (0.5 + math.Abs(e.unit()))
		}, n), optimizerTol)
		return func() { e.Dev.Lion(a) }
	}
	return Case{device.OpLion, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (5*4 + modelBytes(o)), FLOPs: 9 * float64(n)}}
}

func modelBytes(o optimizerOptions) float64 {
	if o.none {
		return 0
	}
	return float64(o.model.Size())
}

func scheduleFreeCase(n int64, o optimizerOptions) Case {
	setup := func(e *Env) func() {
		a := device.ScheduleFreeArgs{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Rates: e.List("rates", device.F64, 0.01, 0.1, 0, 1-math.Pow(0.95, 3), 0.3)}
		a.X, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.Segments, a.Mults = e.rated(n, o, 0.5, 2)
		a.Z = e.Changes(e.In("Z", device.F32, n), optimizerTol)
		a.V = e.Changes(e.Make("V", device.F32, func(int) float64 { return 0.01 + math.Abs(e.unit()) }, n), optimizerTol)
		return func() { e.Dev.ScheduleFree(a) }
	}
	return Case{device.OpScheduleFree, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n) * (7*4 + modelBytes(o)), FLOPs: 16 * float64(n)}}
}

func blendCase(n int64, d device.DType) Case {
	return Case{Op: device.OpBlend, Name: fmt.Sprintf("%d %s", n, d), Setup: func(e *Env) func() {
		a := device.BlendArgs{Out: e.Out("Out", tol(d, 1, 2), d, n), X: e.In("X", device.F32, n), Y: e.In("Y", device.F32, n), A: 0.9}
		return func() { e.Dev.Blend(a) }
	}, Work: Work{Bytes: float64(n * (8 + d.Size()))}}
}

// adamW8Case compares bits.
func adamW8Case(n int64, o optimizerOptions) Case {
	blocks := (n + device.CodeBlock - 1) / device.CodeBlock
	setup := func(e *Env) func() {
		a := device.AdamW8Args{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
		a.Param, a.Grad, a.Model, a.Hyper = e.optimizerInputs(n, o)
		e.Changes(a.Param, exact)
		if a.Model.Given() {
			e.Changes(a.Model, exact)
		}
		a.Rates = e.List("rates", device.F64, 0.01, 0.1, 1-math.Pow(0.9, 3), math.Sqrt(1-math.Pow(0.95, 3)), 0)
		count := int64(1)
		if o.cut {
			a.Segments = e.blockSegments(n)
			count = a.Segments.Shape[0]
		}
		a.Mults = e.Make("mults", device.F32, func(i int) float64 { return []float64{0.5, 2, 1, 0}[i%4] }, count, 2)
		code := func(int) float64 { return float64(e.below(256)) }
		a.MCodes, a.VCodes = e.Changes(e.Make("M codes", device.U8, code, n), exact), e.Changes(e.Make("V codes", device.U8, code, n), exact)
		most := func(i int) float64 { return float64(i%3) * math.Abs(e.unit()) } // some blocks are 0
		a.MScales, a.VScales = e.Changes(e.Make("M max", device.F32, most, blocks), exact), e.Changes(e.Make("V max", device.F32, most, blocks), exact)
		a.Maps = e.Make("maps", device.F32, func(i int) float64 { return codeMap(i/256, i%256) }, 2, 256)
		a.Nearest = e.Make("nearest", device.U8, nearestCode, 2, device.NearestCodes)
		return func() { e.Dev.AdamW8(a) }
	}
	return Case{device.OpAdamW8, fmt.Sprintf("%d %s", n, o), setup, Work{Bytes: float64(n)*(3*4+4+modelBytes(o)) + 16*float64(blocks), FLOPs: 30 * float64(n)}}
}

// codeMap is the value of a code, of a signed map and of one without signs, dense around 0.
func codeMap(unsigned, code int) float64 {
	x := float64(code)/127.5 - 1
	if unsigned == 1 {
		x = float64(code) / 255
	}
	return x * x * x
}

// nearestCode is number i of the tables of both maps: the code whose value is next to the middle of a stretch of [-1, 1].
func nearestCode(i int) float64 {
	x := math.Cbrt(2*float64(i%device.NearestCodes)/(device.NearestCodes-1) - 1)
	if i < device.NearestCodes {
		return math.Round((x + 1) * 127.5)
	}
	return math.Round(max(0, x) * 255)
}

// blockSegments cuts n elements into segments that begin at blocks: some end within one, some leave one out.
func (e *Env) blockSegments(n int64) device.Tensor {
	var at []float64
	for from := int64(0); from < n || len(at) == 0; {
		to := min(n, from+[]int64{5000, 256, 1, 20000, 511}[len(at)/2%5])
		at = append(at, float64(from), float64(to))
		from = (to+device.CodeBlock-1)/device.CodeBlock*device.CodeBlock + []int64{0, 0, device.CodeBlock}[len(at)/2%3]
	}
	return e.List("segments", device.I64, at...).Reshape(int64(len(at)/2), 2)
}
