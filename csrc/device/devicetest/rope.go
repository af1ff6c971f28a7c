package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

type ropeShape struct{ tokens, groups, heads, d, rot int64 }

func ropeCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range []ropeShape{{1, 1, 1, 4, 4}, {5, 2, 3, 5, 4}, {0, 1, 1, 8, 8}, {17, 1, 2, 64, 64}, {33, 3, 1, 64, 16}, {65, 1, 4, 128, 128}, {300, 2, 2, 80, 80}, {7, 1, 1, 34, 2}} {
			for bits := range 4 {
				cases = append(cases, ropeCase(d, s, bits&1 != 0, bits&2 != 0))
			}
		}
	}
	return cases
}

// ropeCase turns the query view inside a buffer of queries, a key and a value a
// group, as the model has it; keys and values must stay.
func ropeCase(d device.DType, s ropeShape, interleaved, inverse bool) Case {
	const positions = 50
	name := fmt.Sprintf("%s %d tokens %dx%d heads of %d turning %d", d, s.tokens, s.groups, s.heads, s.d, s.rot)
	if interleaved {
		name += " interleaved"
	}
	if inverse {
		name += " inverse"
	}
	setup := func(e *Env) func() {
		a := device.RopeArgs{RotDims: int32(s.rot), Interleaved: flag(interleaved), Inverse: flag(inverse)}
		qkv := e.Changes(e.In("QKV", d, s.tokens, s.groups*(s.heads+2)*s.d), tol(d, 1, 2))
		a.X, _, _ = splitHeads(qkv, s.groups, s.heads, s.d)
		angle := make([]float64, positions*s.rot/2)
		for i := range angle {
			angle[i] = 4 * e.unit()
		}
		a.Cos = e.Make("cos", device.F32, func(i int) float64 { return math.Cos(angle[i]) }, positions, s.rot/2)
		a.Sin = e.Make("sin", device.F32, func(i int) float64 { return math.Sin(angle[i]) }, positions, s.rot/2)
		a.Positions = e.Ints("positions", positions, s.tokens)
		return func() { e.Dev.Rope(a) }
	}
	n := float64(s.tokens * s.groups * s.heads * s.rot)
	return Case{device.OpRope, name, setup, Work{Bytes: 2 * n * float64(d.Size()), FLOPs: 3 * n}}
}

// splitHeads views a buffer [tokens, groups·(heads+2)·d], where each group has
// its queries, then one key and one value, as Q, K and V.
func splitHeads(qkv device.Tensor, groups, heads, d int64) (q, k, v device.Tensor) {
	group := (heads + 2) * d
	view := func(at, heads int64) device.Tensor {
		return offset(qkv, at, []int64{qkv.Shape[0], groups, heads, d}, []int64{qkv.Stride[0], group, d, 1})
	}
	return view(0, heads), view(heads*d, 1), view((heads+1)*d, 1)
}
