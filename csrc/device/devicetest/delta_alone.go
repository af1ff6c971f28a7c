package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"monotron/csrc/device"
)

// deltaAlone checks of convolution and delta rule that a document has the same bits alone as packed
// with others, forward and backward, and that rows of a sequence have the same bits whatever passes
// they come in.
func deltaAlone(t *testing.T, dev *device.Device) {
	for _, d := range valueTypes {
		for _, space := range []bool{false, true} {
			t.Run(fmt.Sprint(d, " packed documents, space ", space), func(t *testing.T) { packedAlone(t, dev, d, space) })
			t.Run(fmt.Sprint(d, " paged delta rule, space ", space), func(t *testing.T) { pagedDeltaByRow(t, dev, d, space) })
		}
	}
}

// packedNet is convolution and rule of one sample: 2 key heads of 5, 4 value heads of 19. With space the
// rule is that of a state space.
type packedNet struct {
	dev             *device.Device
	scope           *device.Scope
	d               device.DType
	space           bool
	x, a, b, do     device.Tensor // [rows, ..]
	w, aLog, dtBias device.Tensor
	bias, skip      device.Tensor // [channels], [value heads]
}

// kind makes f, with all inputs of either rule, one of its kind.
func (p packedNet) kind(f *device.DeltaRuleForwardArgs) {
	if p.space {
		f.B, f.StateSpace, f.Skip, f.DtMin, f.DtMax = device.Tensor{}, 1, p.skip, 0.2, 1.5
	}
}

const (
	packedKeys, packedHeads, packedDK, packedDV = 2, 4, 5, 19
	packedChannels                              = 2*packedKeys*packedDK + packedHeads*packedDV
)

// run makes outputs and gradients of rows from..from+n, with documents that begin at starts.
func (p packedNet) run(from, n int64, starts ...int64) (out [][]byte) {
	rows := func(t device.Tensor) device.Tensor { return t.Slice(0, from, n) }
	// docStart: i32 [1, n], where the document of each row begins.
	docs := make([]int32, n)
	for _, s := range starts {
		for i := s; i < n; i++ {
			docs[i] = int32(s)
		}
	}
	docStart := p.scope.Alloc(device.I32, 1, n)
	device.WriteSlice(p.dev, docStart, docs)
	// Views of q, k and v [n, heads, d] in the columns of a convolution's result.
	view := func(t device.Tensor, first, heads, d int64) device.Tensor {
		return device.Strided(t.Slice(1, first, 1).Data, t.DType, []int64{n, heads, d}, []int64{t.Stride[0], d, 1})
	}
	split := func(t device.Tensor) (q, k, v device.Tensor) {
		const wide = packedKeys * packedDK
		return view(t, 0, packedKeys, packedDK), view(t, wide, packedKeys, packedDK), view(t, 2*wide, packedHeads, packedDV)
	}
	// Forward: convolution, then the rule.
	new2 := func(columns int64) device.Tensor { return p.scope.Alloc(p.d, n, columns) }
	conv, o := new2(packedChannels), p.scope.Alloc(p.d, n, packedHeads, packedDV)
	p.dev.CausalConvForward(device.CausalConvForwardArgs{Y: conv, X: rows(p.x), W: p.w, Bias: p.bias, DocStart: docStart, Batch: 1})
	f := device.DeltaRuleForwardArgs{O: o, A: rows(p.a), B: rows(p.b), ALog: p.aLog, DtBias: p.dtBias, DocStart: docStart, Batch: 1,
		States: p.scope.Alloc(device.F32, packedHeads, (n+device.DeltaChunk-1)/device.DeltaChunk, packedDK, packedDV)}
	f.Q, f.K, f.V = split(conv)
	p.kind(&f)
	p.dev.DeltaRuleForward(f)
	// Backward, in the converse order.
	dconv, dx, da, db := new2(packedChannels), new2(packedChannels), new2(packedHeads), new2(packedHeads)
	zero := func(shape ...int64) device.Tensor {
		t := p.scope.Alloc(device.F32, shape...)
		p.dev.Fill(t, 0)
		return t
	}
	back := device.DeltaRuleBackwardArgs{DA: da, DB: db, DALog: zero(packedHeads), DDtBias: zero(packedHeads), DO: rows(p.do), Forward: f}
	if p.space {
		p.dev.Fill(db, 0)
		back.DB, back.DSkip = device.Tensor{}, zero(packedHeads)
	}
	back.DQ, back.DK, back.DV = split(dconv)
	p.dev.DeltaRuleBackward(back)
	p.dev.CausalConvBackward(device.CausalConvBackwardArgs{DX: dx, DW: zero(packedChannels, 4), DBias: zero(packedChannels), DY: dconv, X: rows(p.x), W: p.w, Bias: p.bias, DocStart: docStart, Batch: 1})
	// The convolution without its activation.
	plain, dplain := new2(packedChannels), new2(packedChannels)
	p.dev.CausalConvForward(device.CausalConvForwardArgs{Y: plain, X: rows(p.x), W: p.w, DocStart: docStart, Batch: 1, Plain: 1})
	p.dev.CausalConvBackward(device.CausalConvBackwardArgs{DX: dplain, DW: zero(packedChannels, 4), DY: dconv, X: rows(p.x), W: p.w, DocStart: docStart, Batch: 1, Plain: 1})
	for _, t := range []device.Tensor{conv, o, dconv, dx, da, db, plain, dplain} {
		out = append(out, readBytes(p.dev, t))
	}
	return out
}

func packedAlone(t *testing.T, dev *device.Device, d device.DType, space bool) {
	const n = 250
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(5, 5))
	p := packedNet{dev: dev, scope: s, d: d, space: space, bias: random(dev, s, r, d, packedChannels), skip: random(dev, s, r, d, packedHeads), x: random(dev, s, r, d, n, packedChannels), a: random(dev, s, r, d, n, packedHeads), b: random(dev, s, r, d, n, packedHeads),
		do: random(dev, s, r, d, n, packedHeads, packedDV), w: random(dev, s, r, d, packedChannels, 4), aLog: random(dev, s, r, d, packedHeads), dtBias: random(dev, s, r, d, packedHeads)}
	starts := []int64{0, 1, 38, 40, 190}
	all := p.run(0, n, starts...)
	for i, from := range starts {
		end := int64(n)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		for k, alone := range p.run(from, end-from, 0) {
			row := int64(len(all[k])) / n
			if !bytes.Equal(alone, all[k][from*row:end*row]) {
				t.Errorf("tensor %d of the document from %d to %d has different bits than when it is computed alone", k, from, end)
			}
		}
	}
}

// pagedDeltaByRow runs two sequences at once, in pieces and row by row.
func pagedDeltaByRow(t *testing.T, dev *device.Device, d device.DType, space bool) {
	const rows, heads, dk, dv, channels, blocks = 45, 4, 20, 35, 70, 9
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(6, 6))
	// Inputs of both sequences, one after the other, and blocks for each.
	x, w := random(dev, s, r, d, 2*rows, channels), random(dev, s, r, d, channels, 4)
	q, k, v := random(dev, s, r, d, 2*rows, 2, dk), random(dev, s, r, d, 2*rows, 2, dk), random(dev, s, r, d, 2*rows, heads, dv)
	a, b, aLog, dtBias := random(dev, s, r, d, 2*rows, heads), random(dev, s, r, d, 2*rows, heads), random(dev, s, r, d, heads), random(dev, s, r, d, heads)
	bias, skip := random(dev, s, r, d, channels), random(dev, s, r, d, heads)
	tables := s.Alloc(device.I32, 2, 3)
	device.WriteSlice(dev, tables, []int32{3, 1, 7, 0, 8, 2})
	// run makes their outputs in pieces of so many rows.
	run := func(pieces ...int64) []byte {
		inputs, states := s.Alloc(device.F32, blocks, device.PagedBlock, channels), s.Alloc(device.F32, blocks, heads, dk, (dv+15)/16*16)
		y, o := s.Alloc(d, 2*rows, channels), s.Alloc(d, 2*rows, heads, dv)
		pass := func(first, sequence, at, n int64) { // n rows of a sequence from `at` on
			entries := make([]int32, 0, 2*n)
			for i := range n {
				entries = append(entries, int32(sequence), int32(at+i))
			}
			where := s.Alloc(device.I32, n, 2)
			device.WriteSlice(dev, where, entries)
			part := func(t device.Tensor) device.Tensor { return t.Slice(0, first+at, n) }
			dev.PagedCausalConv(device.PagedCausalConvArgs{Y: part(y), X: part(x), W: w, Bias: bias, Inputs: inputs, Tables: tables, Rows: where})
			rule := device.PagedDeltaRuleArgs{O: part(o), Q: part(q), K: part(k), V: part(v), A: part(a), B: part(b), ALog: aLog, DtBias: dtBias, States: states, Tables: tables, Rows: where}
			if space {
				rule.B, rule.StateSpace, rule.Skip = device.Tensor{}, 1, skip
			}
			dev.PagedDeltaRule(rule)
		}
		at := int64(0)
		for _, n := range pieces {
			pass(0, 0, at, n)
			pass(rows, 1, at, n)
			at += n
		}
		return append(readBytes(dev, y), readBytes(dev, o)...)
	}
	full, single := run(rows), make([]int64, rows)
	for i := range single {
		single[i] = 1
	}
	if !bytes.Equal(full, run(7, 9, 16, 13)) || !bytes.Equal(full, run(single...)) {
		t.Error("rows have other bits in pieces than at once")
	}
}
