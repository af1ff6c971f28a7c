package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
)

func activationCases() []Case {
	var cases []Case
	for kind := range activations.Activations {
		for _, d := range valueTypes {
			for _, s := range [][2]int64{{1, 1}, {0, 4}, {3, 5}, {17, 65}, {5, 129}, {70, 1000}} {
				cases = append(cases, activationForwardCase(d, kind, s[0], s[1], 0), activationBackwardCase(d, kind, s[0], s[1], 0, false))
			}
			cases = append(cases, activationForwardCase(d, kind, 17, 63, 3), activationBackwardCase(d, kind, 17, 63, 3, false), activationBackwardCase(d, kind, 17, 65, 0, true))
		}
		cases = append(cases, extremeActivation(kind))
		cases = append(cases, weightedActivationCases(kind)...)
	}
	return append(cases, activationForwardCase(device.F32, activations.Swiglu, 300, 1000, 0), activationBackwardCase(device.F32, activations.Swiglu, 300, 1000, 0, false))
}

// Inputs reach ±√3·activationSpread, where the tails of gelu are.
const activationSpread = 3

func gates(kind device.Activation) int64 {
	if kind.Gated() {
		return 2
	}
	return 1
}

// activationTol: a few operations on numbers up to 5, products of two up to 27;
// forward and backward alike.
func activationTol(d device.DType) Tol { return tol(d, 1, 27) }

func activationForwardCase(d device.DType, kind device.Activation, rows, f, pad int64) Case {
	setup := func(e *Env) func() {
		a := device.ActivationForwardArgs{Kind: kind}
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, rows, gates(kind)*f+pad), pad)
		a.Y = narrow(e.Out("Y", activationTol(d), d, rows, f+pad), pad)
		return func() { e.Dev.ActivationForward(a) }
	}
	n := float64(rows * f)
	return Case{device.OpActivationForward, activationName(d, kind, rows, f, pad), setup, Work{Bytes: n * float64(d.Size()*(gates(kind)+1)), FLOPs: 10 * n}}
}

func activationBackwardCase(d device.DType, kind device.Activation, rows, f, pad int64, alias bool) Case {
	name := activationName(d, kind, rows, f, pad)
	if alias {
		name += " in place"
	}
	setup := func(e *Env) func() {
		a := device.ActivationBackwardArgs{Kind: kind}
		wide := gates(kind)*f + pad
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, rows, wide), pad)
		a.DY = narrow(e.In("DY", d, rows, f+pad), pad)
		if alias {
			a.DX = e.Changes(a.X, activationTol(d))
		} else {
			a.DX = narrow(e.Out("DX", activationTol(d), d, rows, wide), pad)
		}
		return func() { e.Dev.ActivationBackward(a) }
	}
	n := float64(rows * f)
	return Case{device.OpActivationBackward, name, setup, Work{Bytes: n * float64(d.Size()*(2*gates(kind)+1)), FLOPs: 20 * n}}
}

func weightedActivationCases(kind device.Activation) (cases []Case) {
	for _, d := range valueTypes {
		for _, s := range [][2]int64{{1, 1}, {0, 4}, {17, 65}, {70, 1000}} {
			cases = append(cases, weightedForwardCase(d, kind, s[0], s[1], 0), weightedBackwardCase(d, kind, s[0], s[1], 0, false))
		}
		cases = append(cases, weightedForwardCase(d, kind, 17, 63, 3), weightedBackwardCase(d, kind, 17, 63, 3, false), weightedBackwardCase(d, kind, 17, 65, 0, true))
	}
	return cases
}

// weightedTol: what a device and ref have rounded to neighbours is multiplied and rounded again.
func weightedTol(d device.DType) Tol {
	t := tol(d, 2, 2*27)
	t.Rel *= 2
	return t
}

func weightedForwardCase(d device.DType, kind device.Activation, rows, f, pad int64) Case {
	setup := func(e *Env) func() {
		a := device.ActivationForwardArgs{Kind: kind, Weights: e.In("Weights", device.F32, rows)}
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, rows, gates(kind)*f+pad), pad)
		a.Y = narrow(e.Out("Y", weightedTol(d), d, rows, f+pad), pad)
		return func() { e.Dev.ActivationForward(a) }
	}
	n := float64(rows * f)
	return Case{device.OpActivationForward, activationName(d, kind, rows, f, pad) + " weighted", setup, Work{Bytes: n * float64(d.Size()*(gates(kind)+1)), FLOPs: 11 * n}}
}

func weightedBackwardCase(d device.DType, kind device.Activation, rows, f, pad int64, alias bool) Case {
	name := activationName(d, kind, rows, f, pad) + " weighted"
	if alias {
		name += " in place"
	}
	setup := func(e *Env) func() {
		wide := gates(kind)*f + pad
		a := device.ActivationBackwardArgs{Kind: kind, Weights: e.In("Weights", device.F32, rows)}
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, rows, wide), pad)
		a.DY = narrow(e.In("DY", d, rows, f+pad), pad)
		if alias {
			a.DX = e.Changes(a.X, weightedTol(d))
		} else {
			a.DX = narrow(e.Out("DX", weightedTol(d), d, rows, wide), pad)
		}
		a.DWeights = e.Out("DWeights", tol(device.F32, f, 27*math.Sqrt(float64(f))).rounded(d, 27), device.F32, rows)
		return func() { e.Dev.ActivationBackward(a) }
	}
	n := float64(rows * f)
	return Case{device.OpActivationBackward, name, setup, Work{Bytes: n * float64(d.Size()*(2*gates(kind)+1)), FLOPs: 23 * n}}
}

func activationName(d device.DType, kind device.Activation, rows, f, pad int64) string {
	name := fmt.Sprintf("%s %dx%d %s", d, rows, f, kind)
	if pad > 0 {
		name += " strided"
	}
	return name
}

// extremeActivation: far out every gelu is 0 or x, nothing overflows on the way,
// and NaN stays NaN (fp16 training finds overflow by it).
func extremeActivation(kind device.Activation) Case {
	return Case{Op: device.OpActivationForward, Name: "f32 extremes " + kind.String(), Setup: func(e *Env) func() {
		in := []float64{0, 30, -30, 100, -100, 1000, -1000, 1e-30, -1e-30, math.NaN(), math.Inf(1)}
		f := len(in)
		a := device.ActivationForwardArgs{Kind: kind, Y: e.Out("Y", tol(device.F32, 1, 1), device.F32, 1, int64(f))}
		a.X = e.Make("X", device.F32, func(i int) float64 {
			if i >= f {
				return 2
			}
			return in[i]
		}, 1, int64(f)*gates(kind))
		return func() { e.Dev.ActivationForward(a) }
	}}
}
