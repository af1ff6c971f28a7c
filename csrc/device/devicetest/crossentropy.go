package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// lossShape: logits [rows, v] of which `columns` count; the shard's first
// column is number start of labels 0..labels-1.
type lossShape struct{ rows, v, columns, start, labels int64 }

func crossEntropyCases() []Case {
	var cases []Case
	for _, s := range []lossShape{
		{1, 1, 1, 0, 1}, {0, 8, 8, 0, 8}, {5, 17, 17, 0, 17}, {33, 128, 65, 0, 65}, {64, 129, 129, 100, 400}, {7, 64, 5, 60, 65}, {100, 1000, 1000, 0, 1000},
		{2, 50304, 50257, 0, 50257}, {4, 16, 0, 48, 48},
	} {
		for _, spread := range []float64{2, 1000} { // 1000: all but the largest underflow
			for _, pad := range []int64{0, 3} {
				cases = append(cases, crossEntropyStatsCase(s, spread, pad))
			}
			for _, d := range valueTypes {
				cases = append(cases, crossEntropyGradCase(d, s, spread, false, 0), crossEntropyGradCase(d, s, spread, true, 65536))
			}
			cases = append(cases, crossEntropyGradCase(device.F32, s, spread, true, 0))
		}
	}
	for _, rows := range []int64{1, 5, 129, 3000} {
		cases = append(cases, crossEntropyLossCase(rows))
	}
	return append(cases, nonFiniteLogits(), columnsOfNothing(2), columnsOfNothing(700))
}

func lossInputs(e *Env, s lossShape, spread float64, pad int64) device.CrossEntropyStatsArgs {
	return device.CrossEntropyStatsArgs{
		Logits: narrow(e.Scaled("logits", device.F32, 1, spread, s.rows, s.v+pad), pad), Labels: e.Ints("labels", s.labels, s.rows), Start: s.start, Columns: s.columns,
	}
}

// The largest and the target are copies. The sum has `columns` terms of at most
// 1, so columns is the most it can be; √columns of √columns sized partial sums.
func (e *Env) lossStats(a *device.CrossEntropyStatsArgs, s lossShape) {
	a.Max, a.Target = e.Out("max", exact, device.F32, s.rows), e.Out("target", exact, device.F32, s.rows)
	t := tol(device.F32, s.columns, 2)
	t.Rel = 4 * eps32 * math.Sqrt(float64(max(4, s.columns)))
	a.Sum = e.Out("sum", t, device.F32, s.rows)
}

func crossEntropyStatsCase(s lossShape, spread float64, pad int64) Case {
	setup := func(e *Env) func() {
		a := lossInputs(e, s, spread, pad)
		e.lossStats(&a, s)
		return func() { e.Dev.CrossEntropyStats(a) }
	}
	return Case{device.OpCrossEntropyStats, lossName(device.F32, s, spread, pad), setup, Work{Bytes: 4 * float64(s.rows*s.columns), FLOPs: 4 * float64(s.rows*s.columns)}}
}

// crossEntropyGradCase: with D in Logits' memory where d is f32 and inPlace;
// scale 0: none is given. D is about weight·scale, below 2·scale.
func crossEntropyGradCase(d device.DType, s lossShape, spread float64, strided bool, scale float64) Case {
	inPlace := d == device.F32 && strided && scale == 0
	pad := int64(0)
	if strided && !inPlace {
		pad = 3
	}
	setup := func(e *Env) func() {
		f := lossInputs(e, s, spread, pad)
		a := device.CrossEntropyGradArgs{Logits: f.Logits, Labels: f.Labels, Start: s.start, Columns: s.columns}
		twin := e.twin()
		defer twin.scope.Release()
		b := lossInputs(twin, s, spread, pad)
		twin.lossStats(&b, s)
		twin.Dev.CrossEntropyStats(b)
		a.Max, a.Sum = e.From(twin, "max", b.Max), e.From(twin, "sum", b.Sum)
		a.Weight = e.Make("weight", device.F32, func(i int) float64 { return float64(i%3) / 2 }, s.rows)
		size := 1.0
		if scale > 0 && d != device.F16 { // 65536 is beyond f16
			size = scale
		}
		if scale > 0 {
			a.Scale = e.List("scale", device.F32, size)
		}
		// p's relative error is half an ulp of x−max; p·|x−max| stays below 0.4.
		t := tol(d, 1, 2*size)
		if inPlace {
			a.D = e.Changes(a.Logits, t)
		} else {
			a.D = narrow(e.Out("D", t, d, s.rows, s.v+pad), pad)
		}
		return func() { e.Dev.CrossEntropyGrad(a) }
	}
	name := lossName(d, s, spread, pad)
	if inPlace {
		name += " in place"
	}
	if scale > 0 {
		name += " scaled"
	}
	return Case{device.OpCrossEntropyGrad, name, setup, Work{Bytes: float64(s.rows * s.v * (4 + d.Size())), FLOPs: 4 * float64(s.rows*s.columns)}}
}

func crossEntropyLossCase(rows int64) Case {
	return Case{Op: device.OpCrossEntropyLoss, Name: fmt.Sprintf("f32 %d rows", rows), Setup: func(e *Env) func() {
		a := device.CrossEntropyLossArgs{Max: e.Scaled("max", device.F32, 10, 3, rows), Target: e.In("target", device.F32, rows)}
		a.Sum = e.Make("sum", device.F32, func(int) float64 { return 1 + 1000*math.Abs(e.unit()) }, rows)
		a.Loss = e.Out("loss", tol(device.F32, 1, 20), device.F32, rows)
		return func() { e.Dev.CrossEntropyLoss(a) }
	}}
}

// columnsOfNothing: −inf in all columns but one adds nothing, wherever the one is: the
// statistics of ranks, some of which have no column.
func columnsOfNothing(v int64) Case {
	return Case{Op: device.OpCrossEntropyStats, Name: fmt.Sprintf("f32 4x%d one finite", v), Setup: func(e *Env) func() {
		a := device.CrossEntropyStatsArgs{Columns: v, Labels: e.Ints("labels", v, 4)}
		a.Logits = e.Make("logits", device.F32, func(i int) float64 {
			if row, column := int64(i)/v, int64(i)%v; column == row*(v-1)/3 {
				return float64(row) - 2
			}
			return math.Inf(-1)
		}, 4, v)
		e.lossStats(&a, lossShape{rows: 4, v: v, columns: v})
		return func() { e.Dev.CrossEntropyStats(a) }
	}}
}

// nonFiniteLogits: a NaN or an inf makes the row's sum NaN, so that the loss
// shows it; the value in Max is free, and not checked here.
func nonFiniteLogits() Case {
	const v = 40
	return Case{Op: device.OpCrossEntropyStats, Name: "f32 3x40 non-finite", Setup: func(e *Env) func() {
		a := device.CrossEntropyStatsArgs{Columns: v, Labels: e.Ints("labels", v, 3)}
		a.Logits = e.Make("logits", device.F32, func(i int) float64 {
			switch i {
			case v + 33:
				return math.NaN()
			case 2*v + 5:
				return math.Inf(1)
			}
			return e.unit()
		}, 3, v)
		a.Max, a.Target = e.Out("max", anything, device.F32, 3), e.Out("target", anything, device.F32, 3)
		a.Sum = e.Out("sum", tol(device.F32, v, 20), device.F32, 3)
		return func() { e.Dev.CrossEntropyStats(a) }
	}}
}

func lossName(d device.DType, s lossShape, spread float64, pad int64) string {
	name := fmt.Sprintf("%s %dx%d of %d from %d spread %g", d, s.rows, s.columns, s.v, s.start, spread)
	if pad > 0 {
		name += " strided"
	}
	return name
}
