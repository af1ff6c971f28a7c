package cpu

import (
	"fmt"
	"slices"
	"testing"

	"monotron/csrc/device"
)

type matmulCase struct {
	m, n, k        int64
	dtype, c       device.DType
	ta, tb         int32
	bias           bool
	epilogue       device.Epilogue
	accumulate     bool
	pad            int64
	aScale, bScale float64
}

func (c matmulCase) String() string {
	return fmt.Sprintf("%v>%v %dx%dx%d ta%d tb%d bias=%v epilogue%d acc=%v pad%d", c.dtype, c.c, c.m, c.n, c.k, c.ta, c.tb, c.bias, c.epilogue, c.accumulate, c.pad)
}

// matmulCases: every transposition and dtype at sizes inside one panel, at edges
// of panels and of blocks of k, over several tiles; every epilogue.
func matmulCases() (cases []matmulCase) {
	sizes := [][3]int64{{1, 1, 1}, {3, 5, 7}, {1, 100, 65}, {4, 97, 33}, {5, 64, 32}, {33, 49, 515}, {64, 96, 128}, {257, 300, 130}, {100, 200, 1030}, {600, 800, 64}}
	for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
		for i, s := range sizes {
			for trans := range int32(4) {
				base := matmulCase{m: s[0], n: s[1], k: s[2], dtype: dtype, c: dtype, ta: trans & 1, tb: trans >> 1, pad: int64(i % 3)}
				wide, added, biased := base, base, base
				wide.c = device.F32
				added.c, added.accumulate = device.F32, true
				biased.bias, biased.epilogue = true, device.Epilogue(i%3)
				cases = append(cases, base, wide, added, biased)
			}
		}
	}
	return cases
}

func (p *pair) matmul(c matmulCase) (out, aux both) {
	am, ak, bk, bn := c.m, c.k, c.k, c.n
	if c.ta != 0 {
		am, ak = ak, am
	}
	if c.tb != 0 {
		bk, bn = bn, bk
	}
	a, b := p.random(c.dtype, 1, c.pad, am, ak), p.random(c.dtype, 1, c.pad, bk, bn)
	out = p.random(c.c, 1, c.pad, c.m, c.n)
	var bias both
	if c.bias {
		bias = p.random(c.dtype, 1, 0, c.n)
	}
	if c.epilogue != device.NoEpilogue {
		aux = p.random(c.dtype, 1, c.pad, c.m, c.n)
	}
	args := device.MatmulArgs{TransA: c.ta, TransB: c.tb, Epilogue: c.epilogue}
	if c.accumulate {
		args.Accumulate = 1
	}
	args.C, args.A, args.B, args.Bias, args.Aux = out.cpu, a.cpu, b.cpu, bias.cpu, aux.cpu
	p.cpu.Matmul(args)
	args.C, args.A, args.B, args.Bias, args.Aux = out.ref, a.ref, b.ref, bias.ref, aux.ref
	p.ref.Matmul(args)
	return out, aux
}

// Values against ref, padding untouched, with every kernel that this machine has.
func TestMatmul(t *testing.T) {
	underEach(t, func(t *testing.T) {
		p := newPair(t, 2)
		t.Log(p.cpu.Describe())
		for _, c := range matmulCases() {
			tol := max(epsilon(c.c), 1e-5)
			if c.epilogue != device.NoEpilogue {
				tol *= 2
			}
			out, aux := p.matmul(c)
			p.same(c.String(), out, tol)
			if aux.given() {
				p.same(c.String()+" aux", aux, tol)
			}
			p.done()
		}
	})
}

// The same bits with 1, 2 and 3 threads (design.md, section 4).
func TestMatmulThreads(t *testing.T) {
	underEach(t, func(t *testing.T) {
		for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
			var first []float64
			for threads := 1; threads <= 3; threads++ {
				p := newPair(t, threads)
				out, _ := p.matmul(matmulCase{m: 700, n: 900, k: 300, dtype: dtype, c: dtype, tb: 1, bias: true, epilogue: device.GeluTanhEpilogue})
				if v := values(out.cpu); first == nil {
					first = v
				} else if !slices.Equal(first, v) {
					t.Errorf("%v: %d threads give other bits than one", dtype, threads)
				}
				p.done()
			}
		}
	})
}
