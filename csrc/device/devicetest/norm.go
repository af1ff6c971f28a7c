package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

type normOptions struct {
	kind     device.NormKind
	onePlus  bool
	strided  bool
	heads    bool   // rows are some of the heads of a token
	residual string // of backward: "", "own", or what it aliases: "dx", "dy"
	leaves   leafRows
}

// leafRows are the rows of leaves: `chunk` of each, of `batch` samples in turn; chunk 0: sums are over all rows.
type leafRows struct{ chunk, batch int32 }

// sums is the shape of sums of rows of n.
func (l leafRows) sums(rows, n int64) []int64 {
	if l.chunk == 0 {
		return []int64{n}
	}
	return []int64{rows / int64(l.chunk), n}
}

func (l leafRows) String() string {
	if l.chunk == 0 {
		return ""
	}
	return fmt.Sprintf(" of leaves of %d rows of %d samples", l.chunk, l.batch)
}

func (o normOptions) String() string {
	s := map[device.NormKind]string{device.LayerNormKind: "layer", device.RMSNormKind: "rms"}[o.kind]
	if o.onePlus {
		s += " one-plus"
	}
	if o.strided {
		s += " strided"
	}
	if o.heads {
		s += " heads"
	}
	if o.residual != "" {
		s += " residual " + o.residual
	}
	return s + o.leaves.String()
}

const (
	normMean = 3 // of X, so that a variance by differences of squares shows
	normEps  = 1e-5
)

var (
	normForwards  = []normOptions{{}, {strided: true}, {onePlus: true}, {kind: device.RMSNormKind}, {kind: device.RMSNormKind, onePlus: true, strided: true}}
	normBackwards = append(normForwards[:len(normForwards):len(normForwards)], normOptions{residual: "own"}, normOptions{residual: "dx", strided: true}, normOptions{residual: "dy"},
		normOptions{kind: device.RMSNormKind, residual: "own"}, normOptions{kind: device.RMSNormKind, residual: "dx"})
)

func normCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range [][]int64{{1, 3}, {0, 8}, {2, 5}, {3, 17}, {64, 65}, {5, 129}, {17, 768}, {70, 1000}, {5, 2, 3, 16}} {
			for _, o := range normForwards {
				cases = append(cases, normForwardCase(d, s, o))
			}
			for _, o := range normBackwards {
				cases = append(cases, normBackwardCase(d, s, o))
			}
		}
	}
	for _, d := range valueTypes { // rows of heads' channels, several of which a block has
		for _, s := range [][]int64{{17, 2, 64}, {70, 3, 128}, {9, 1, 256}} {
			for _, o := range []normOptions{{}, {heads: true, onePlus: true}, {kind: device.RMSNormKind, heads: true}} {
				cases = append(cases, normForwardCase(d, s, o), normBackwardCase(d, s, o))
			}
			cases = append(cases, normBackwardCase(d, s, normOptions{heads: true, residual: "dx"}), normBackwardCase(d, s, normOptions{residual: "dy"}))
		}
	}
	for _, d := range valueTypes { // rows longer than a block of threads takes at once
		long := []int64{3, 8192}
		cases = append(cases, normForwardCase(d, long, normOptions{}), normForwardCase(d, long, normOptions{kind: device.RMSNormKind}),
			normBackwardCase(d, long, normOptions{residual: "own"}), normBackwardCase(d, long, normOptions{kind: device.RMSNormKind, residual: "dx"}))
	}
	for _, d := range valueTypes {
		for _, l := range []leafRows{{1, 1}, {4, 3}, {12, 2}} {
			for _, o := range []normOptions{{leaves: l, residual: "own"}, {leaves: l, kind: device.RMSNormKind, strided: true}} {
				cases = append(cases, normBackwardCase(d, []int64{24, 65}, o), normBackwardCase(d, []int64{24, 1000}, o))
			}
		}
	}
	large := []int64{300, 1000}
	return append(cases, normForwardCase(device.F32, large, normOptions{}), normBackwardCase(device.F32, large, normOptions{residual: "own"}), nonFiniteNorm())
}

// buffer is the shape of the buffer that a tensor of `shape` views: in strided cases rows are 3
// elements wider, and of heads a token has two more.
func (o normOptions) buffer(shape []int64) []int64 {
	wide := append([]int64{}, shape...)
	if o.strided {
		wide[len(wide)-1] += 3
	}
	if o.heads {
		wide[len(wide)-2] += 2
	}
	return wide
}

func (o normOptions) view(t device.Tensor) device.Tensor {
	if o.strided {
		t = narrow(t, 3)
	}
	if o.heads {
		t = t.Slice(int(t.Rank)-2, 1, t.Shape[t.Rank-2]-2)
	}
	return t
}

// normInputs are what forward and backward share.
func normInputs(e *Env, d device.DType, shape []int64, o normOptions) (a device.NormForwardArgs) {
	h := shape[len(shape)-1]
	a = device.NormForwardArgs{Kind: o.kind, OnePlus: flag(o.onePlus), Eps: normEps}
	a.X = o.view(e.Scaled("X", d, normMean, 1, o.buffer(shape)...))
	a.Gamma = e.In("gamma", d, h)
	if o.kind == device.LayerNormKind {
		a.Beta = e.In("beta", d, h)
	}
	return a
}

// normScale: sums of x, about 3, then of squares; both divided by h, so the
// size of one term rules, times gamma below 2.8.
func normScale(h int64) (k int64, scale float64) { return h, 2 * normMean }

func (e *Env) normStats(a *device.NormForwardArgs, t Tol) {
	if a.Kind == device.LayerNormKind {
		a.Mean = e.Out("mean", t, device.F32, a.X.Rows())
	}
	a.Rstd = e.Out("rstd", t, device.F32, a.X.Rows())
}

func normForwardCase(d device.DType, shape []int64, o normOptions) Case {
	setup := func(e *Env) func() {
		a := normInputs(e, d, shape, o)
		h := a.X.Last()
		k, scale := normScale(h)
		a.Y = o.view(e.Out("Y", tol(d, k, scale), d, o.buffer(shape)...))
		e.normStats(&a, tol(device.F32, k, scale))
		return func() { e.Dev.NormForward(a) }
	}
	n := float64(length(shape))
	return Case{device.OpNormForward, fmt.Sprintf("%s %v %s", d, shape, o), setup, Work{Bytes: 2 * n * float64(d.Size()), FLOPs: 8 * n}}
}

func normBackwardCase(d device.DType, shape []int64, o normOptions) Case {
	setup := func(e *Env) func() {
		// DY, X: [rows, h]; DGamma, DBeta: f32 [h], or [leaves, h], to which sums over rows are added.
		f := normInputs(e, d, shape, o)
		e.normStatistics(&f, d, shape, o)
		rows, h := f.X.Rows(), f.X.Last()
		a := device.NormBackwardArgs{X: f.X, Gamma: f.Gamma, Mean: f.Mean, Rstd: f.Rstd, Kind: o.kind, OnePlus: f.OnePlus, Chunk: o.leaves.chunk, Batch: o.leaves.batch}
		k, scale := normScale(h)
		a.DY = o.view(e.In("DY", d, o.buffer(shape)...))
		sums := tol(device.F32, rows, 3*math.Sqrt(float64(rows))+1)
		a.DGamma = e.Changes(e.In("dgamma", device.F32, o.leaves.sums(rows, h)...), sums)
		if o.kind == device.LayerNormKind {
			a.DBeta = e.Changes(e.In("dbeta", device.F32, o.leaves.sums(rows, h)...), sums)
		}
		// The gradient by the residual may be dx itself, dy, or a tensor of its own.
		t := tol(d, k, scale)
		if o.residual == "dx" {
			a.DX = o.view(e.Changes(e.In("DX", d, o.buffer(shape)...), t))
			a.Residual = a.DX
		} else {
			a.DX = o.view(e.Out("DX", t, d, o.buffer(shape)...))
		}
		switch o.residual {
		case "own":
			a.Residual = e.In("residual", d, shape...)
		case "dy":
			a.Residual = a.DY
		}
		return func() { e.Dev.NormBackward(a) }
	}
	n := float64(length(shape))
	streams := 3.0
	if o.residual != "" {
		streams++
	}
	return Case{device.OpNormBackward, fmt.Sprintf("%s %v %s", d, shape, o), setup, Work{Bytes: streams * n * float64(d.Size()), FLOPs: 14 * n}}
}

// normStatistics makes the mean and rstd that the oracle's forward gives.
func (e *Env) normStatistics(a *device.NormForwardArgs, d device.DType, shape []int64, o normOptions) {
	twin := e.twin()
	defer twin.scope.Release()
	b := normInputs(twin, d, shape, o)
	twin.normStats(&b, exact)
	b.Y = twin.Out("Y", exact, d, shape...)
	twin.Dev.NormForward(b)
	if b.Mean.Given() {
		a.Mean = e.From(twin, "mean", b.Mean)
	}
	a.Rstd = e.From(twin, "rstd", b.Rstd)
}

// nonFiniteNorm: a NaN spoils its row only.
func nonFiniteNorm() Case {
	return Case{Op: device.OpNormForward, Name: "f32 3x20 non-finite", Setup: func(e *Env) func() {
		a := device.NormForwardArgs{Eps: normEps, X: e.Make("X", device.F32, spoiled(e, 20+7, math.NaN()), 3, 20), Gamma: e.In("gamma", device.F32, 20)}
		a.Y = e.Out("Y", tol(device.F32, 20, 2), device.F32, 3, 20)
		e.normStats(&a, tol(device.F32, 20, 2))
		return func() { e.Dev.NormForward(a) }
	}}
}

func length(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}
