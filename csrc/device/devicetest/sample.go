package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// sampleShape: rows of logits [v], `columns` of which count.
type sampleShape struct{ rows, v, columns int64 }

// sampleRule is how tokens are chosen.
type sampleRule struct {
	temperature, topP, minP float64
	topK                    int64
	edits                   int64 // of each row but the second
	best                    int64 // asked for
	steps                   float64
}

var sampleRules = []sampleRule{
	{}, {temperature: 1}, {temperature: 0.7, topK: 5}, {temperature: 1.3, topK: 1}, {temperature: 1, topK: 77}, {temperature: 2, topP: 0.9}, {temperature: 1, topP: 1e-9},
	{temperature: 1, topP: 1, minP: 0.2}, {temperature: 0.5, topP: 0.5, minP: 0.01, topK: 40}, {temperature: 1e-6}, {temperature: 50, minP: 1},
	{edits: 7}, {temperature: 1, edits: 7, best: 3}, {temperature: 0.9, topK: 20, topP: 0.8, edits: 76, best: 90}, {temperature: 1, steps: 2, topK: 30, best: 5}, {temperature: 1, steps: 2, topP: 0.3},
	{steps: 1, best: 20}, {temperature: 1, steps: 1, minP: 0.9},
}

func sampleCases() []Case {
	var cases []Case
	small, full := sampleShape{9, 80, 77}, sampleShape{2, 50304, 50257}
	for _, r := range sampleRules {
		cases = append(cases, sampleCase(small, r), sampleCase(sampleShape{3, 1, 1}, r))
		if r.edits < 10 && r.best < 10 {
			cases = append(cases, sampleCase(full, r))
		}
	}
	return append(cases, sampleCase(sampleShape{0, 8, 8}, sampleRule{temperature: 1}), sampleCase(sampleShape{40, 513, 513}, sampleRule{temperature: 1, topP: 0.95}), oddLogits())
}

// sampleCase: every third row's token is given; all is equal to the bit. With steps many
// logits are alike.
func sampleCase(s sampleShape, r sampleRule) Case {
	setup := func(e *Env) func() {
		// logits: f32 [rows, v]
		a := sampleResults(e, s.rows, min(r.best, 2*s.columns), Tol{})
		a.Columns = s.columns
		a.Logits = e.Make("logits", device.F32, func(int) float64 {
			if r.steps > 0 {
				return math.Round(e.unit()*r.steps) / r.steps
			}
			return 6 * e.unit()
		}, s.rows, s.v)
		// rules: i32 [rows, 4]: given token or -1, top-k, random draw, start of the row's edits. Row 1 has none: the
		// rows behind it start one row earlier.
		edits := min(r.edits, s.columns)
		a.Rules = e.Make("rules", device.I32, func(i int) float64 {
			row := int64(i) / 4
			switch {
			case i%4 == 0 && row%3 == 2:
				return float64(s.columns - 1)
			case i%4 == 0:
				return -1
			case i%4 == 1:
				return float64(r.topK)
			case i%4 == 2:
				return math.Round(e.unit() * math.MaxInt32)
			}
			if row > 1 {
				row--
			}
			return float64(row * edits)
		}, s.rows, 4)
		// numbers: f64 [rows, 3]
		a.Numbers = e.Make("numbers", device.F64, func(i int) float64 { return []float64{r.temperature, r.topP, r.minP}[i%3] }, s.rows, 3)
		// Pairs of ratio and addend; some tokens are excluded by -Inf.
		if edits > 0 {
			n := (s.rows - 1) * edits
			a.EditIDs = e.Make("edited", device.I32, func(i int) float64 { return float64(int64(i) % edits * (s.columns / edits)) }, n)
			a.EditValues = e.Make("edits", device.F32, func(i int) float64 {
				if i%2 == 0 {
					return 1 + math.Abs(e.unit())
				}
				if i%10 == 3 {
					return math.Inf(-1)
				}
				return e.unit()
			}, n, 2)
		}
		return func() { e.Dev.Sample(a) }
	}
	return Case{device.OpSample, fmt.Sprintf("%dx%d of %d %+v", s.rows, s.columns, s.v, r), setup, Work{Bytes: 4 * float64(s.rows*s.columns)}}
}

func sampleResults(e *Env, rows, best int64, t Tol) (a device.SampleArgs) {
	a.IDs, a.Chosen = e.Out("ids", Tol{}, device.I32, rows), e.Out("chosen", t, device.F32, rows)
	a.Max, a.Sum = e.Out("max", t, device.F32, rows), e.Out("sum", t, device.I64, rows)
	if best > 0 {
		a.Best, a.BestLogits = e.Out("best", t, device.I32, rows, best), e.Out("best logits", t, device.F32, rows, best)
	}
	return a
}

// oddLogits: a row with a logit that is not finite has no token; its other outputs are
// not checked.
func oddLogits() Case {
	const v = 300
	return Case{Op: device.OpSample, Name: "f32 4x300 not finite", Setup: func(e *Env) func() {
		a := sampleResults(e, 4, 2, anything)
		a.Columns = v
		a.Logits = e.Make("logits", device.F32, func(i int) float64 {
			switch i {
			case v + 299:
				return math.NaN()
			case 2*v + 5:
				return math.Inf(1)
			case 3 * v:
				return math.Inf(-1)
			}
			return e.unit()
		}, 4, v)
		a.Rules = e.Make("rules", device.I32, func(i int) float64 { return float64(-((i + 3) % 4 / 3)) }, 4, 4)
		a.Numbers = e.Make("numbers", device.F64, func(i int) float64 { return float64((i + 2) % 3 / 2) }, 4, 3)
		return func() { e.Dev.Sample(a) }
	}}
}
