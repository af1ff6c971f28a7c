package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
)

// partCases are scales, caps, the sinks of attention, and gates with a limit.
func partCases() (cases []Case) {
	for _, d := range valueTypes {
		for _, n := range []int64{0, 1, 17, 1001, 100000} {
			cases = append(cases, scaleCase(d, n, false), scaleCase(d, n, true), softCapCase(d, n), softCapBackwardCase(d, d, n))
			if d != device.F32 { // capped values of a wider type
				cases = append(cases, softCapBackwardCase(d, device.F32, n))
			}
		}
		for _, s := range []attentionShape{square(1, 1, 1, 1, 4), square(2, 70, 2, 2, 33), square(1, 300, 1, 4, 64)} {
			cases = append(cases, sinkCase(d, s), sinkBackwardCase(d, s))
		}
		for _, kind := range []device.Activation{activations.QuickGeglu, activations.Swiglu, activations.Geglu} {
			for _, weighted := range []bool{false, true} {
				cases = append(cases, limitedCase(d, kind, weighted), limitedBackwardCase(d, kind, weighted))
			}
		}
	}
	return cases
}

func scaleCase(d device.DType, n int64, factor bool) Case {
	return Case{Op: device.OpScale, Name: fmt.Sprintf("%s %d factor %v", d, n, factor), Setup: func(e *Env) func() {
		a := device.ScaleArgs{X: e.In("X", d, n), Out: e.Out("Out", tol(d, 1, 1), d, n), By: 0.3}
		if factor {
			a.Factor = e.In("Factor", device.F32, 1)
		}
		return func() { e.Dev.Scale(a) }
	}, Work: Work{Bytes: float64(2 * n * d.Size())}}
}

func softCapCase(d device.DType, n int64) Case {
	return Case{Op: device.OpSoftCap, Name: fmt.Sprintf("%s %d", d, n), Setup: func(e *Env) func() {
		x := e.Changes(e.Scaled("X", d, 0, 5, n), tol(d, 1, 3))
		return func() { e.Dev.SoftCap(device.SoftCapArgs{Out: x, X: x, Cap: 3}) }
	}, Work: Work{Bytes: float64(2 * n * d.Size())}}
}

func softCapBackwardCase(d, y device.DType, n int64) Case {
	return Case{Op: device.OpSoftCapBackward, Name: fmt.Sprintf("%s of %s %d", d, y, n), Setup: func(e *Env) func() {
		a := device.SoftCapBackwardArgs{DY: e.In("DY", d, n), Cap: 3}
		a.Y = e.Make("Y", y, func(int) float64 { return 1.7 * e.unit() }, n)
		a.DX = e.Changes(a.DY, tol(d, 1, 4))
		return func() { e.Dev.SoftCapBackward(a) }
	}, Work: Work{Bytes: float64(3 * n * d.Size())}}
}

// sinkInputs are O, LSE and Sinks of an attention, of nearly equal and of very different weight.
func sinkInputs(e *Env, d device.DType, s attentionShape) device.AttentionSinkArgs {
	return device.AttentionSinkArgs{O: e.In("O", d, s.sq*s.batch, s.groups, s.heads, s.d), Sinks: e.In("Sinks", d, s.groups*s.heads),
		LSE: e.Make("LSE", device.F32, func(i int) float64 {
			if i%5 == 1 {
				return 50 * e.unit()
			}
			return 3 * e.unit()
		}, s.batch, s.groups*s.heads, s.sq)}
}

func sinkCase(d device.DType, s attentionShape) Case {
	return Case{Op: device.OpAttentionSink, Name: fmt.Sprintf("%s %dx%d %dx%d heads of %d", d, s.batch, s.sq, s.groups, s.heads, s.d), Setup: func(e *Env) func() {
		a := sinkInputs(e, d, s)
		e.Changes(a.O, tol(d, 2, 2))
		e.Changes(a.LSE, tol(device.F32, 1, 8))
		return func() { e.Dev.AttentionSink(a.O, a.LSE, a.Sinks) }
	}, Work: Work{Bytes: float64(2 * s.sq * s.batch * s.groups * s.heads * s.d * d.Size())}}
}

func sinkBackwardCase(d device.DType, s attentionShape) Case {
	return Case{Op: device.OpAttentionSinkBackward, Name: fmt.Sprintf("%s %dx%d %dx%d heads of %d", d, s.batch, s.sq, s.groups, s.heads, s.d), Setup: func(e *Env) func() {
		f := sinkInputs(e, d, s)
		a := device.AttentionSinkBackwardArgs{O: f.O, Sinks: f.Sinks, DO: e.In("DO", d, s.sq*s.batch, s.groups, s.heads, s.d)}
		a.LSE = e.Make("L", device.F32, func(int) float64 { return 4 + 2*math.Abs(e.unit()) }, s.batch, s.groups*s.heads, s.sq)
		terms := s.sq * s.batch * s.d
		a.DSinks = e.Changes(e.In("DSinks", device.F32, s.groups*s.heads), tol(device.F32, terms, 8*math.Sqrt(float64(terms))))
		return func() { e.Dev.AttentionSinkBackward(a) }
	}, Work: Work{Bytes: float64(2 * s.sq * s.batch * s.groups * s.heads * s.d * d.Size())}}
}

func limitedCase(d device.DType, kind device.Activation, weighted bool) Case {
	c := activationForwardCase(d, kind, activationShape{17, 65, 0}, weighted)
	c.Name += " limited"
	c.Setup = func(e *Env) func() {
		a := device.ActivationForwardArgs{Kind: kind, Limit: 1.5, Offset: 1, X: e.Scaled("X", d, 0, activationSpread, 17, 130), Y: e.Out("Y", activationTol(d, weighted), d, 17, 65)}
		if weighted {
			a.Weights = e.In("Weights", device.F32, 17)
		}
		return func() { e.Dev.ActivationForward(a) }
	}
	return c
}

func limitedBackwardCase(d device.DType, kind device.Activation, weighted bool) Case {
	c := activationBackwardCase(d, kind, activationShape{17, 65, 0}, weighted, false)
	c.Name += " limited"
	c.Setup = func(e *Env) func() {
		a := device.ActivationBackwardArgs{Kind: kind, Limit: 1.5, Offset: 1, X: e.Scaled("X", d, 0, activationSpread, 17, 130), DY: e.In("DY", d, 17, 65)}
		a.DX = e.Out("DX", activationTol(d, weighted), d, 17, 130)
		if weighted {
			a.Weights, a.DWeights = e.In("Weights", device.F32, 17), e.Out("DWeights", weightsTol(d, 65), device.F32, 17)
		}
		return func() { e.Dev.ActivationBackward(a) }
	}
	return c
}

// partGradients: caps, gates with a limit, and attention with sinks by its two ops.
func partGradients(g *gradient) {
	x, y, w, dx := g.Scaled("", device.F64, 0, 4, 9), g.out(9), g.in(9), g.out(9)
	loss := func() float64 {
		g.Dev.SoftCap(device.SoftCapArgs{Out: y, X: x, Cap: 3})
		return g.loss(w, y)
	}
	loss()
	g.Dev.SoftCapBackward(device.SoftCapBackwardArgs{DX: dx, DY: w, Y: y, Cap: 3})
	g.check("cap", x, dx, loss)
	for _, kind := range []device.Activation{activations.QuickGeglu, activations.Swiglu} {
		f := device.ActivationForwardArgs{X: g.Scaled("", device.F64, 0, 2, 4, 10), Y: g.out(4, 5), Kind: kind, Limit: 1.5, Offset: 1}
		w, dx := g.in(4, 5), g.out(4, 10)
		g.Dev.ActivationBackward(device.ActivationBackwardArgs{DX: dx, DY: w, X: f.X, Kind: kind, Limit: 1.5, Offset: 1})
		g.check(kind.String()+" limited", f.X, dx, func() float64 {
			g.Dev.ActivationForward(f)
			return g.loss(w, f.Y)
		})
	}
	sinkGradients(g)
}

func sinkGradients(g *gradient) {
	s := square(2, 5, 2, 2, 3)
	f := device.AttentionForwardArgs{Batch: int32(s.batch), Window: 2, Scale: 0.5, Q: g.in(s.sq*s.batch, s.groups, s.heads, s.d), O: g.out(s.sq*s.batch, s.groups, s.heads, s.d),
		K: g.in(s.sk*s.batch, s.groups, 1, s.d), V: g.in(s.sk*s.batch, s.groups, 1, s.d), LSE: g.out(s.batch, s.groups*s.heads, s.sq)}
	sinks, w := g.in(s.groups*s.heads), g.in(f.O.Dims()...)
	loss := func() float64 {
		g.Dev.AttentionForward(f)
		g.Dev.AttentionSink(f.O, f.LSE, sinks)
		return g.loss(w, f.O)
	}
	loss()
	dq, dk, dv, dsinks := g.out(f.Q.Dims()...), g.out(f.K.Dims()...), g.out(f.V.Dims()...), g.zero(s.groups*s.heads)
	g.Dev.AttentionBackward(device.AttentionBackwardArgs{DQ: dq, DK: dk, DV: dv, DO: w, Forward: f})
	g.Dev.AttentionSinkBackward(device.AttentionSinkBackwardArgs{DSinks: dsinks, O: f.O, DO: w, LSE: f.LSE, Sinks: sinks})
	g.check("q with sinks", f.Q, dq, loss)
	g.check("k with sinks", f.K, dk, loss)
	g.check("v with sinks", f.V, dv, loss)
	g.check("sinks", sinks, dsinks, loss)
}
