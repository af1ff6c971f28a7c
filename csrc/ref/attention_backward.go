package ref

import (
	"math"

	"monotron/csrc/device"
)

// AttentionBackward: with p = exp(s−lse) and z its mask over 1−rate,
// dv = Σ p·z·do, dp = z·(do·v), ds = p·(dp − do·o), dq = scale·Σ ds·k,
// dk = scale·Σ ds·q (Dao, arXiv 2307.08691, section 2.3).
func (b *backend) AttentionBackward(a *device.AttentionBackwardArgs) {
	f := &a.Forward
	m := newMask(&f.Drop)
	b.pool.Run(int64(f.Batch)*f.Q.Shape[1], func(_ int, tile int64) {
		g := newGroup(f, m, tile/f.Q.Shape[1], tile%f.Q.Shape[1])
		dk, dv := make([]float64, g.sk*g.d), make([]float64, g.sk*g.d)
		work := newQueryWork(g)
		for h := range f.Q.Shape[2] {
			for i := range g.sq {
				g.queryGrads(a, work, i, h, dk, dv)
				store(a.DQ, g.at(a.DQ, i, h), work.dq)
			}
		}
		for j := range g.sk {
			store(a.DK, g.at(a.DK, j, 0), dk[j*g.d:][:g.d])
			store(a.DV, g.at(a.DV, j, 0), dv[j*g.d:][:g.d])
		}
	})
}

// queryWork is one query's workspace: vectors of d, and one number a key.
type queryWork struct{ q, o, do, dq, p, z, slope []float64 }

func newQueryWork(g *group) *queryWork {
	v := func(n int64) []float64 { return make([]float64, n) }
	return &queryWork{v(g.d), v(g.d), v(g.d), v(g.d), v(g.sk), v(g.sk), v(g.sk)}
}

// queryGrads makes dq of query i of head h and adds to its keys' dk and dv.
func (g *group) queryGrads(a *device.AttentionBackwardArgs, w *queryWork, i, h int64, dk, dv []float64) {
	load(w.q, g.Q, g.at(g.Q, i, h))
	load(w.o, g.O, g.at(g.O, i, h))
	load(w.do, a.DO, g.at(a.DO, i, h))
	from, to := g.visible(i)
	p, z := g.scores(w.p[from:to], w.q, i, h, from), w.z[from:to]
	lse, through, scale := one(g.LSE, g.row(i, h)), dot(w.do, w.o), float64(g.Scale)
	slope := g.slopesOf(w.slope[from:to], p, h, i, from)
	for j := range p {
		p[j] = math.Exp(p[j] - lse)
		z[j] = 1
	}
	g.drop(z, i, h, from)
	clear(w.dq)
	for j := range p {
		at := (from + int64(j)) * g.d
		k, v := g.k[at:][:g.d], g.v[at:][:g.d]
		axpy(dv[at:][:g.d], p[j]*z[j], w.do)
		ds := scale * slope[j] * p[j] * (z[j]*dot(w.do, v) - through)
		axpy(w.dq, ds, k)
		axpy(dk[at:][:g.d], ds, w.q)
	}
}

// slopesOf are the derivatives of scores by scale·q·k: 1, or 1 − (capped/Cap)².
func (g *group) slopesOf(slope, scores []float64, h, i, from int64) []float64 {
	for j, s := range scores {
		if slope[j] = 1; g.Rule == device.CappedScores {
			key := from + int64(j)
			if g.slopes != nil {
				s -= bias(g.Slopes, g.slopes, g.head(h), key+int64(g.KOffset), key-g.ahead-i)
			}
			s /= float64(g.Cap)
			slope[j] = 1 - s*s
		}
	}
	return slope
}
