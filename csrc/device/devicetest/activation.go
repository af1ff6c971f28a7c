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
			for _, weighted := range []bool{false, true} {
				for _, s := range []activationShape{{1, 1, 0}, {0, 4, 0}, {3, 5, 0}, {17, 65, 0}, {5, 129, 0}, {70, 1000, 0}, {17, 63, 3}} {
					cases = append(cases, activationForwardCase(d, kind, s, weighted), activationBackwardCase(d, kind, s, weighted, false))
				}
				cases = append(cases, activationBackwardCase(d, kind, activationShape{17, 65, 0}, weighted, true))
			}
		}
		cases = append(cases, extremeActivation(kind))
	}
	large := activationShape{300, 1000, 0}
	return append(cases, activationForwardCase(device.F32, activations.Swiglu, large, false), activationBackwardCase(device.F32, activations.Swiglu, large, false, false))
}

// activationShape is rows of f results; pad lie behind each.
type activationShape struct{ rows, f, pad int64 }

// Inputs reach ±√3·activationSpread, where the tails of gelu are.
const activationSpread = 3

func gates(kind device.Activation) int64 {
	if kind.Gated() {
		return 2
	}
	return 1
}

// activationTol: a few operations on numbers up to 5, products of two up to 27;
// forward and backward alike. Where a row is weighted, what a device and ref have rounded to
// neighbours is multiplied and rounded again.
func activationTol(d device.DType, weighted bool) Tol {
	if !weighted {
		return tol(d, 1, 27)
	}
	t := tol(d, 2, 2*27)
	t.Rel *= 2
	return t
}

func activationForwardCase(d device.DType, kind device.Activation, s activationShape, weighted bool) Case {
	setup := func(e *Env) func() {
		a := device.ActivationForwardArgs{Kind: kind}
		if weighted {
			a.Weights = e.In("Weights", device.F32, s.rows)
		}
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, s.rows, gates(kind)*s.f+s.pad), s.pad)
		a.Y = narrow(e.Out("Y", activationTol(d, weighted), d, s.rows, s.f+s.pad), s.pad)
		return func() { e.Dev.ActivationForward(a) }
	}
	n, operations := float64(s.rows*s.f), 10.0
	if weighted {
		operations++
	}
	return Case{device.OpActivationForward, activationName(d, kind, s, weighted), setup, Work{Bytes: n * float64(d.Size()*(gates(kind)+1)), FLOPs: operations * n}}
}

func activationBackwardCase(d device.DType, kind device.Activation, s activationShape, weighted, alias bool) Case {
	name := activationName(d, kind, s, weighted)
	if alias {
		name += " in place"
	}
	setup := func(e *Env) func() {
		// X: [rows, f], or [rows, 2f] with a gate; DY: [rows, f]; Weights: f32 [rows]. Rows have padding between them.
		a := device.ActivationBackwardArgs{Kind: kind}
		if weighted {
			a.Weights = e.In("Weights", device.F32, s.rows)
		}
		wide := gates(kind)*s.f + s.pad
		a.X = narrow(e.Scaled("X", d, 0, activationSpread, s.rows, wide), s.pad)
		a.DY = narrow(e.In("DY", d, s.rows, s.f+s.pad), s.pad)
		if alias {
			a.DX = e.Changes(a.X, activationTol(d, weighted))
		} else {
			a.DX = narrow(e.Out("DX", activationTol(d, weighted), d, s.rows, wide), s.pad)
		}
		if weighted {
			a.DWeights = e.Out("DWeights", weightsTol(d, s.f), device.F32, s.rows)
		}
		return func() { e.Dev.ActivationBackward(a) }
	}
	// Bytes that must move, and the operations of one element.
	n, operations := float64(s.rows*s.f), 20.0
	if weighted {
		operations += 3
	}
	return Case{device.OpActivationBackward, name, setup, Work{Bytes: n * float64(d.Size()*(2*gates(kind)+1)), FLOPs: operations * n}}
}

// weightsTol: sums over a row of f products, of which a device and ref round one factor, up to 27
// and 9 on average, to neighbours: one, or where the device's activation in 16 bits is within
// 2^-14 of itself before it is rounded (gelu of AVX-512), one in 64 of them, of either sign; four standard
// deviations of these.
func weightsTol(d device.DType, f int64) Tol {
	neighbours := 4 * math.Sqrt(float64(f)/64)
	return tol(device.F32, f, 27*math.Sqrt(float64(f))).rounded(d, max(27, 9*neighbours))
}

func activationName(d device.DType, kind device.Activation, s activationShape, weighted bool) string {
	name := fmt.Sprintf("%s %dx%d %s", d, s.rows, s.f, kind)
	if s.pad > 0 {
		name += " strided"
	}
	if weighted {
		name += " weighted"
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
