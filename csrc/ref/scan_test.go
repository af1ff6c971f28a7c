package ref_test

import (
	"math"
	"testing"

	"monotron/csrc/device"
)

// Claim: a state-space scan is the matrix of its dual form (arXiv 2405.21060, section 5): position t gets
// Σ over u ≤ t of (C_t·B_u)·e^(a·(Δ_{u+1}+..+Δ_t))·Δ_u·x_u, over the positions of its document, and D·x_t. Heads
// that share B and C are neighbours; Δ has limits.
func TestScanKnown(t *testing.T) {
	const s, heads, groups, dk, dv = 9, 4, 2, 3, 2
	wave := func(n int, step, height float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = height * math.Sin(step*float64(i+1))
		}
		return x
	}
	x, b, c := wave(s*heads*dv, 1.3, 1), wave(s*groups*dk, 0.7, 1), wave(s*groups*dk, 2.1, 1)
	dt, aLog, dtBias, skip := wave(s*heads, 0.9, 2), wave(heads, 1, 0.5), wave(heads, 3, 0.2), wave(heads, 5, 1)
	starts := []float64{0, 0, 0, 0, 4, 4, 4, 4, 4}
	const least, most = 0.25, 1.25 // exact in f32
	// The dual form.
	var want []float64
	for at := range s {
		for head := range heads {
			step := func(u int) float64 {
				return min(most, max(least, math.Log1p(math.Exp(dt[u*heads+head]+dtBias[head]))))
			}
			group := head * groups / heads
			for i := range dv {
				y := skip[head] * x[(at*heads+head)*dv+i]
				for u := int(starts[at]); u <= at; u++ {
					score, decay := 0.0, 0.0
					for k := range dk {
						score += c[(at*groups+group)*dk+k] * b[(u*groups+group)*dk+k]
					}
					for between := u + 1; between <= at; between++ {
						decay -= math.Exp(aLog[head]) * step(between)
					}
					y += score * math.Exp(decay) * step(u) * x[(u*heads+head)*dv+i]
				}
				want = append(want, y)
			}
		}
	}
	k := open(t)
	defer k.Close()
	o := k.empty(s, heads, dv)
	k.DeltaRuleForward(device.DeltaRuleForwardArgs{O: o, Q: k.f64(c, s, groups, dk), K: k.f64(b, s, groups, dk), V: k.f64(x, s, heads, dv), A: k.f64(dt, s, heads), ALog: k.f64(aLog), DtBias: k.f64(dtBias),
		Skip: k.f64(skip), DocStart: k.of(device.I32, starts, 1, s), Batch: 1, StateSpace: 1, DtMin: least, DtMax: most})
	k.want("scan", o, want...)
}
