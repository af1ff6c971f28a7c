package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// lowRankShape is a branch of an adapter: X [n,in], Y [n,groups,size].
type lowRankShape struct{ n, in, rank, groups, size int64 }

// lowRankOptions names one call.
type lowRankOptions struct {
	product bool // X is X·Aᵀ
	transB  bool
	strided bool
	wideY   bool // Y f32 whatever X is
	keep    bool // T is asked for
}

func lowRankCases() (cases []Case) {
	for _, d := range valueTypes {
		for _, s := range []lowRankShape{{1, 1, 1, 1, 1}, {0, 5, 4, 1, 7}, {1, 576, 16, 1, 1536}, {3, 65, 8, 3, 64}, {5, 17, 3, 2, 33}, {70, 130, 16, 1, 100}, {129, 64, 5, 4, 47}} {
			for _, o := range []lowRankOptions{{transB: true}, {}, {product: true}, {product: true, transB: true, strided: true}, {transB: true, strided: true}, {transB: true, wideY: true}, {transB: true, keep: true}, {keep: true, strided: true}} {
				cases = append(cases, lowRankCase(d, s, o))
			}
		}
	}
	return append(cases, lowRankCase(device.BF16, lowRankShape{600, 300, 32, 1, 200}, lowRankOptions{transB: true}))
}

// lowRankCase: X, A and op(B) of variance 1, so that X·Aᵀ is about √in and what is added √(in·rank).
func lowRankCase(d device.DType, s lowRankShape, o lowRankOptions) Case {
	const scale = 0.75
	in, depth := s.in, s.in+s.rank
	if o.product {
		in, depth = s.rank, s.rank
	}
	out, dy := s.groups*s.size, d
	if o.wideY {
		dy = device.F32
	}
	setup := func(e *Env) func() {
		pad := int64(0)
		if o.strided {
			pad = 3
		}
		size := math.Sqrt(float64(s.rank))
		a := device.LowRankAddArgs{Scale: scale, TransB: flag(o.transB)}
		if !o.product {
			size *= math.Sqrt(float64(in))
			a.A = narrow(e.In("A", d, padded(pad, s.rank, in)...), pad)
		}
		a.X = narrow(e.In("X", d, padded(pad, s.n, in)...), pad)
		a.B = narrow(e.In("B", d, padded(pad, swap(o.transB, s.rank, out)...)...), pad)
		t := tol(dy, depth, scale*size)
		if s.groups > 1 {
			a.Y = narrow(e.Changes(e.In("Y", dy, padded(pad, s.n, s.groups, s.size)...), t), pad)
		} else {
			a.Y = narrow(e.Changes(e.In("Y", dy, padded(pad, s.n, out)...), t), pad)
		}
		if o.keep {
			a.T = narrow(e.Out("T", tol(d, in, scale*math.Sqrt(float64(in))), d, padded(pad, s.n, s.rank)...), pad)
		}
		return func() { e.Dev.LowRankAdd(a) }
	}
	bytes := float64(d.Size())*float64(s.n*in+s.rank*out) + float64(2*dy.Size()*s.n*out)
	work := Work{Bytes: bytes, FLOPs: 2 * float64(s.n*s.rank*out)}
	if !o.product {
		work.Bytes += float64(d.Size() * s.rank * in)
		work.FLOPs += 2 * float64(s.n*s.rank*in)
	}
	name := map[bool]string{false: "X·Aᵀ", true: "product"}[o.product] + map[bool]string{true: ", B transposed"}[o.transB] + map[bool]string{true: ", strided"}[o.strided] + map[bool]string{true: ", f32 Y"}[o.wideY] + map[bool]string{true: ", keeps Scale·X·Aᵀ"}[o.keep]
	return Case{device.OpLowRankAdd, fmt.Sprintf("%s %dx%d rank %d to %dx%d, %s", d, s.n, in, s.rank, s.groups, s.size, name), setup, work}
}
