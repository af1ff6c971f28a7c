package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// muonCases are the parts of Muon that are not products of matrices.
func muonCases() (cases []Case) {
	for _, n := range []int64{0, 1, 17, 1001, 100003} {
		for _, o := range []optimizerOptions{{none: true}, {model: device.F32}, {model: device.BF16}, {model: device.F16, skip: true}} {
			cases = append(cases, followCase(n, o))
		}
		for _, skip := range []bool{false, true} {
			cases = append(cases, momentumCase(n, false, skip), momentumCase(n, true, skip), adamuonCase(n, skip))
		}
		for _, d := range valueTypes {
			cases = append(cases, normalizeCase(d, n, 2.5), normalizeCase(d, n, 0))
		}
	}
	for _, s := range [][2]int64{{1, 1}, {17, 5}, {5, 17}, {64, 64}, {3, 1001}, {300, 1000}, {1000, 300}} {
		cases = append(cases, normuonCase(s[0], s[1], false), normuonCase(s[0], s[1], true))
	}
	for _, d := range valueTypes {
		for _, n := range []int64{0, 1, 3, 17, 130} {
			cases = append(cases, polynomialCase(d, n, 0), polynomialCase(d, n, 0.3))
		}
	}
	return cases
}

func momentumCase(n int64, nesterov, skip bool) Case {
	name := fmt.Sprintf("%d", n)
	if nesterov {
		name += " nesterov"
	}
	if skip {
		name += " skip"
	}
	return Case{Op: device.OpMomentum, Name: name, Setup: func(e *Env) func() {
		a := device.MomentumArgs{Mu: 0.95}
		a.M = e.Changes(e.In("M", device.F32, n), optimizerTol)
		_, a.Grad, _, a.Hyper = e.optimizerInputs(n, optimizerOptions{none: true, skip: skip})
		if nesterov {
			a.Out = e.Changes(e.In("Out", device.F32, n), optimizerTol)
		}
		return func() { e.Dev.Momentum(a) }
	}, Work: Work{Bytes: float64(4 * n * 4), FLOPs: 5 * float64(n)}}
}

// normalizeCase: of a norm, or of norm 0, where Eps replaces it.
func normalizeCase(d device.DType, n int64, norm float64) Case {
	return Case{Op: device.OpNormalize, Name: fmt.Sprintf("%s %d of norm %g", d, n, norm), Setup: func(e *Env) func() {
		a := device.NormalizeArgs{Out: e.Out("Out", tol(d, 1, 1), d, n), X: e.In("X", device.F32, n), Eps: 0.7, Stretch: 1.01, Plus: 1e-6}
		a.Stats = e.List("stats", device.F64, norm*norm, 0, 3)
		return func() { e.Dev.Normalize(a) }
	}, Work: Work{Bytes: float64(n * (4 + d.Size()))}}
}

func polynomialCase(d device.DType, n int64, c float32) Case {
	return Case{Op: device.OpPolynomial, Name: fmt.Sprintf("%s %dx%d c %g", d, n, n, c), Setup: func(e *Env) func() {
		a := device.PolynomialArgs{X: e.In("X", d, n, n), A: 3.4445, B: -4.775, C: c}
		if c != 0 {
			a.Y = e.In("Y", d, n, n)
		}
		a.Out = e.Out("Out", tol(d, 3, 20), d, n, n)
		return func() { e.Dev.Polynomial(a) }
	}, Work: Work{Bytes: float64(3 * n * n * d.Size())}}
}

// normuonCase keeps away from a norm of 0, of which the direction is rounding's.
func normuonCase(m, n int64, skip bool) Case {
	return Case{Op: device.OpNorMuon, Name: fmt.Sprintf("%dx%d%s", m, n, map[bool]string{true: " skip"}[skip]), Setup: func(e *Env) func() {
		a := device.NorMuonArgs{Beta2: 0.95, Eps: 1e-8}
		a.X = e.Changes(e.In("X", device.F32, m, n), tol(device.F32, 8, 4))
		a.V = e.Changes(e.Make("V", device.F32, func(int) float64 { return 0.01 + math.Abs(e.unit()) }, max(m, n)), tol(device.F32, 4, 2))
		_, _, _, a.Hyper = e.optimizerInputs(1, optimizerOptions{none: true, skip: skip})
		return func() { e.Dev.NorMuon(a) }
	}, Work: Work{Bytes: float64(8*m*n + 8*max(m, n))}}
}

func adamuonCase(n int64, skip bool) Case {
	return Case{Op: device.OpAdaMuon, Name: fmt.Sprintf("%d%s", n, map[bool]string{true: " skip"}[skip]), Setup: func(e *Env) func() {
		a := device.AdaMuonArgs{Beta2: 0.95, Eps: 1e-8}
		a.X = e.Changes(e.In("X", device.F32, n), tol(device.F32, 4, 16))
		a.V = e.Changes(e.Make("V", device.F32, func(int) float64 { return 0.01 + math.Abs(e.unit()) }, n), tol(device.F32, 2, 4))
		_, _, _, a.Hyper = e.optimizerInputs(1, optimizerOptions{none: true, skip: skip})
		return func() { e.Dev.AdaMuon(a) }
	}, Work: Work{Bytes: float64(16 * n)}}
}

func followCase(n int64, o optimizerOptions) Case {
	return Case{Op: device.OpFollow, Name: fmt.Sprintf("%d %s", n, o), Setup: func(e *Env) func() {
		a := device.FollowArgs{By: 5, Decay: 2}
		a.Param, _, a.Model, a.Hyper = e.optimizerInputs(n, o)
		a.Direction = e.Make("direction", device.F32, func(i int) float64 { return math.Abs(e.unit()) - 0.3 }, n)
		return func() { e.Dev.Follow(a) }
	}, Work: Work{Bytes: float64(n) * (3*4 + modelBytes(o)), FLOPs: 4 * float64(n)}}
}
