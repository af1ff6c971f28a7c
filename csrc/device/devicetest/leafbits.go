package devicetest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/internal/drawn"
)

// LeavesAddUp checks what Matmul promises of Leaves: ranks that have half of the leaves of a product each,
// and add their sums, have the bits of one that has all; so have some rows and columns alone.
func LeavesAddUp(t *testing.T, dev *device.Device) {
	for _, d := range valueTypes {
		for _, shape := range drawn.Part(t, [][3]int64{{5, 7, 64}, {33, 70, 512}, {150, 130, 768}, {64, 300, 2112}, {1, 40, 16384}}, 2) {
			for _, stretches := range []int32{0, 2} {
				t.Run(fmt.Sprint(d, shape, stretches), func(t *testing.T) { leavesAddUp(t, dev, d, shape, stretches) })
			}
		}
	}
}

func leavesAddUp(t *testing.T, dev *device.Device, d device.DType, shape [3]int64, stretches int32) {
	m, n, k := shape[0], shape[1], shape[2]
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(1, uint64(k)))
	a, b, all := random(dev, s, r, d, m, k), random(dev, s, r, d, n, k), s.Alloc(device.F32, m, n)
	full := device.MatmulArgs{C: all, A: a, B: b, TransB: 1, Leaves: 8, Stretches: stretches}
	dev.Matmul(full)
	if !bytes.Equal(readBytes(dev, halves(dev, s, full)), readBytes(dev, all)) {
		t.Error("two halves of the leaves add up to other bits")
	}
	rows, columns := (m+1)/2, (n+1)/2
	cut := full
	cut.C, cut.A, cut.B = s.Alloc(device.F32, rows, columns), a.Slice(0, m-rows, rows), b.Slice(0, n-columns, columns)
	dev.Matmul(cut)
	want := s.Alloc(device.F32, rows, columns)
	dev.Copy(want, all.Slice(0, m-rows, rows).Slice(1, n-columns, columns))
	if !bytes.Equal(readBytes(dev, cut.C), readBytes(dev, want)) {
		t.Error("some rows and columns alone have other bits")
	}
}

// halves is the sum of two products, of half of the leaves of each stretch.
func halves(dev *device.Device, s *device.Scope, full device.MatmulArgs) device.Tensor {
	stretches, k := int64(max(1, full.Stretches)), full.A.Shape[1]
	part := k / stretches / 2
	var sums [2]device.Tensor
	for half := range int64(2) {
		cut := func(t device.Tensor) device.Tensor {
			own := s.Alloc(t.DType, t.Shape[0], k/2)
			for i := range stretches {
				dev.Copy(own.Slice(1, i*part, part), t.Slice(1, i*k/stretches+half*part, part))
			}
			return own
		}
		sums[half] = s.Alloc(device.F32, full.C.Dims()...)
		p := full
		p.C, p.A, p.B, p.Leaves = sums[half], cut(full.A), cut(full.B), full.Leaves/2
		dev.Matmul(p)
	}
	dev.Add(sums[0], sums[0], sums[1])
	return sums[0]
}

// GridsHaveNoOrder checks that a gradient on a grid has the same bits whatever the samples of a
// micro-batch and the order in which they come.
func GridsHaveNoOrder(t *testing.T, dev *device.Device) {
	const m, n, chunk, positions, samples = 70, 130, 16, 64, 4
	for _, d := range valueTypes {
		s := dev.Arena.Scope(device.Activations)
		r := rand.New(rand.NewPCG(2, 3))
		dy, x := random(dev, s, r, d, positions*samples, m), random(dev, s, r, d, positions*samples, n) // row i·samples+j
		grid := s.Alloc(device.F64, 1)
		device.WriteSlice(dev, grid, []float64{0x1p-30})
		made := func(take func(add func(a, b device.Tensor, batch int32))) []byte {
			c, peak := s.Alloc(device.F64, m, n), s.Alloc(device.F32, 1)
			dev.Fill(c, 0)
			dev.Fill(peak, 0)
			take(func(a, b device.Tensor, batch int32) {
				dev.Matmul(device.MatmulArgs{C: c, A: a, B: b, TransA: 1, Accumulate: 1, Grid: grid, Peak: peak, Chunk: chunk, Batch: batch})
			})
			return append(readBytes(dev, c), readBytes(dev, peak)...)
		}
		want := made(func(add func(a, b device.Tensor, batch int32)) { add(dy, x, samples) })
		one := func(t device.Tensor, sample int64) device.Tensor {
			return device.Strided(t.Slice(0, sample, 1).Data, t.DType, []int64{positions, t.Shape[1]}, []int64{samples * t.Stride[0], 1})
		}
		backwards := made(func(add func(a, b device.Tensor, batch int32)) {
			for sample := int64(samples - 1); sample >= 0; sample-- {
				for half := int64(1); half >= 0; half-- {
					add(one(dy, sample).Slice(0, half*positions/2, positions/2), one(x, sample).Slice(0, half*positions/2, positions/2), 1)
				}
			}
		})
		if !bytes.Equal(backwards, want) {
			t.Errorf("%s: the samples, added one by one in reverse order, give different bits", d)
		}
		s.Release()
	}
}

// SumsOfLeaves checks that sums over the rows of a leaf, of columns and of norms' gradients, have the same bits as those of
// its rows alone.
func SumsOfLeaves(t *testing.T, dev *device.Device) {
	const chunk, batch, rows = 32, 3, 192
	for _, d := range valueTypes {
		for _, n := range []int64{65, 3000} {
			s := dev.Arena.Scope(device.Activations)
			r := rand.New(rand.NewPCG(3, uint64(n)))
			zeros := func(shape ...int64) device.Tensor {
				z := s.Alloc(device.F32, shape...)
				dev.Fill(z, 0)
				return z
			}
			a := device.NormBackwardArgs{X: random(dev, s, r, d, rows, n), DY: random(dev, s, r, d, rows, n), DX: s.Alloc(d, rows, n), Gamma: random(dev, s, r, d, n),
				Mean: random(dev, s, r, device.F32, rows), Rstd: random(dev, s, r, device.F32, rows), DGamma: zeros(rows/chunk, n), DBeta: zeros(rows/chunk, n), Chunk: chunk, Batch: batch}
			sums := zeros(rows/chunk, n)
			dev.NormBackward(a)
			dev.ColumnSum(device.ColumnSumArgs{Out: sums, X: a.DY, Chunk: chunk, Batch: batch})
			for leaf := range a.DGamma.Shape[0] {
				own := func(t device.Tensor) device.Tensor { return leafAlone(dev, s, t, leaf, chunk, batch) }
				one := a
				one.X, one.DY, one.Mean, one.Rstd = own(a.X), own(a.DY), own(a.Mean), own(a.Rstd)
				one.DX, one.DGamma, one.DBeta, one.Chunk, one.Batch = s.Alloc(d, chunk, n), zeros(n), zeros(n), 0, 0
				sum := zeros(n)
				dev.NormBackward(one)
				dev.ColumnSum(device.ColumnSumArgs{Out: sum, X: one.DY})
				for what, pair := range map[string][2]device.Tensor{
					"dx": {one.DX, own(a.DX)}, "dgamma": {one.DGamma, a.DGamma.At(leaf)}, "dbeta": {one.DBeta, a.DBeta.At(leaf)}, "the sum of columns": {sum, sums.At(leaf)},
				} {
					if !bytes.Equal(readBytes(dev, pair[0]), readBytes(dev, pair[1])) {
						t.Errorf("%s, %d columns, leaf %d: %s has different bits", d, n, leaf, what)
					}
				}
			}
			s.Release()
		}
	}
}

// leafAlone is a copy of the rows of a leaf of t [rows, ..], one after the other.
func leafAlone(dev *device.Device, s *device.Scope, t device.Tensor, leaf, chunk, batch int64) device.Tensor {
	view := t.Leaf(leaf, chunk, batch)
	own := s.Like(view)
	dev.Copy(own, view)
	return own
}

// GroupsHaveNoOrder checks the same of gradients of experts' matrices and biases, whose leaves are of any length:
// all rows at once, then leaf by leaf, backwards.
func GroupsHaveNoOrder(t *testing.T, dev *device.Device) {
	const m, n = 70, 33
	const third, all = 204, 506
	leaves := []int64{3, 1, 200, 2, 300} // rows of each, also above those that a kernel takes at once; the third group has the last two
	offsets := []int32{0, third, third, all}
	for _, d := range valueTypes {
		s := dev.Arena.Scope(device.Activations)
		r := rand.New(rand.NewPCG(4, 3))
		a, b, grid, number := random(dev, s, r, d, all, m), random(dev, s, r, d, all, n), s.Alloc(device.F64, 1), []int32{}
		device.WriteSlice(dev, grid, []float64{0x1p-30})
		for leaf, rows := range leaves {
			number = append(number, slices.Repeat([]int32{int32(leaf)}, int(rows))...)
		}
		of := func(list []int32) device.Tensor {
			x := s.Alloc(device.I32, int64(len(list)))
			device.WriteSlice(dev, x, list)
			return x
		}
		made := func(take func(add func(from, rows int64, offsets []int32))) []byte {
			c, sum, peak := s.Alloc(device.F64, 3, m, n), s.Alloc(device.F64, 3, m), s.Alloc(device.F32, 1)
			for _, x := range []device.Tensor{c, sum, peak} {
				dev.Fill(x, 0)
			}
			take(func(from, rows int64, offsets []int32) {
				x, at, leaf := a.Slice(0, from, rows), of(offsets), of(number[from:from+rows])
				dev.GroupedMatmul(device.GroupedMatmulArgs{C: c, A: x, B: b.Slice(0, from, rows), Offsets: at, Leaf: leaf, Grid: grid, Peak: peak, TransA: 1})
				dev.GroupedSum(device.GroupedSumArgs{Out: sum, X: x, Offsets: at, Leaf: leaf, Grid: grid, Peak: peak})
			})
			return slices.Concat(readBytes(dev, c), readBytes(dev, sum), readBytes(dev, peak))
		}
		want := made(func(add func(from, rows int64, offsets []int32)) { add(0, all, offsets) })
		backwards := made(func(add func(from, rows int64, offsets []int32)) {
			end := int64(all)
			for i := len(leaves) - 1; i >= 0; i-- {
				rows := leaves[i]
				end -= rows
				only := []int32{0, int32(rows), int32(rows), int32(rows)}
				if end >= third {
					only = []int32{0, 0, 0, int32(rows)}
				}
				add(end, rows, only)
			}
		})
		if !bytes.Equal(backwards, want) {
			t.Errorf("%s: the leaves, added one by one in reverse order, give different bits", d)
		}
		s.Release()
	}
}

// BalancesAddUp checks that sums of probabilities with Bits are exact: those of two parts of the tokens add
// up, in f64, to the bits of all.
func BalancesAddUp(t *testing.T, dev *device.Device) {
	const tokens, experts, first = 300, 13, 117
	for _, d := range valueTypes {
		s := dev.Arena.Scope(device.Activations)
		logits := random(dev, s, rand.New(rand.NewPCG(6, 3)), d, tokens, experts)
		probs := func(from, n int64) []float64 {
			out := s.Alloc(device.F64, 1, experts)
			dev.RouterBalance(device.RouterBalanceArgs{Probs: out, Counts: s.Alloc(device.F32, 1, experts), Logits: logits.Slice(0, from, n), Samples: 1, K: 2, Bits: 40})
			return device.ReadSlice[float64](dev, out)
		}
		all, a, b := probs(0, tokens), probs(0, first), probs(first, tokens-first)
		for i := range all {
			if all[i] != a[i]+b[i] || all[i] != math.RoundToEven(all[i]*0x1p40)*0x1p-40 {
				t.Errorf("%s: expert %d: the result is %v for all tokens, but %v and %v for two parts of them", d, i, all[i], a[i], b[i])
			}
		}
		s.Release()
	}
}

// AnyLayout checks that with --layout-invariant (Device.Common) a row has the same bits among others and
// alone, wherever it lies, and a head of a sample too.
func AnyLayout(t *testing.T, dev *device.Device) {
	dev.Common()
	for _, d := range valueTypes {
		for _, c := range []struct {
			name string
			op   func(l laid) []device.Tensor
		}{{"norms", laid.norms}, {"activations", laid.activations}, {"sums", laid.sums}} {
			t.Run(fmt.Sprint(d, " ", c.name), func(t *testing.T) { rowsAnywhere(t, dev, d, c.op) })
		}
		t.Run(fmt.Sprint(d, " attention"), func(t *testing.T) { headsAnywhere(t, dev, d) })
	}
}

// laid takes rows of tensors of these sizes; a leaf of the width has 24 bytes in bf16.
const laidRows, laidWidth, laidLeaves = 40, 96, 8

// laid is n rows from `from` on, each `shift` elements behind the start of longer rows.
type laid struct {
	dev            *device.Device
	scope          *device.Scope
	dtype          device.DType
	from, n, shift int64
}

// out allocates results.
func (l laid) out(d device.DType, width int64) device.Tensor {
	return l.scope.Alloc(d, l.n, width+2*l.shift).Slice(1, l.shift, width)
}

// in has the rows of a tensor that seed alone decides.
func (l laid) in(seed uint64, d device.DType, width int64) device.Tensor {
	all, some := random(l.dev, l.scope, rand.New(rand.NewPCG(seed, 5)), d, laidRows, width), l.out(d, width)
	l.dev.Copy(some, all.Slice(0, l.from, l.n))
	return some
}

// vector has numbers f32 of the rows, side by side.
func (l laid) vector(seed uint64) device.Tensor {
	v := l.scope.Alloc(device.F32, l.n, 1)
	l.dev.Copy(v, l.in(seed, device.F32, 1))
	return v.Reshape(l.n)
}

func (l laid) norms() []device.Tensor {
	gamma, sums := random(l.dev, l.scope, rand.New(rand.NewPCG(7, 7)), l.dtype, laidWidth), l.scope.Alloc(device.F32, laidWidth)
	x, y, dx, mean, rstd := l.in(1, l.dtype, laidWidth), l.out(l.dtype, laidWidth), l.out(l.dtype, laidWidth), l.scope.Alloc(device.F32, l.n), l.scope.Alloc(device.F32, l.n)
	l.dev.NormForward(device.NormForwardArgs{Y: y, X: x, Gamma: gamma, Beta: gamma, Mean: mean, Rstd: rstd, Eps: 1e-5})
	l.dev.Fill(sums, 0)
	l.dev.NormBackward(device.NormBackwardArgs{DX: dx, DGamma: sums, DBeta: sums, DY: l.in(2, l.dtype, laidWidth), X: x, Gamma: gamma, Mean: mean, Rstd: rstd})
	return []device.Tensor{y, dx, mean.Reshape(l.n, 1), rstd.Reshape(l.n, 1)}
}

func (l laid) activations() []device.Tensor {
	x, weights, parts := l.in(3, l.dtype, 2*laidWidth), l.vector(5), l.scope.Alloc(device.F32, laidLeaves, l.n)
	y, dx := l.out(l.dtype, laidWidth), l.out(l.dtype, 2*laidWidth)
	l.dev.ActivationForward(device.ActivationForwardArgs{Y: y, X: x, Weights: weights, Kind: activations.Swiglu})
	l.dev.ActivationBackward(device.ActivationBackwardArgs{DX: dx, DY: l.in(4, l.dtype, laidWidth), X: x, Weights: weights, DWeights: parts, Kind: activations.Swiglu})
	return []device.Tensor{y, dx, device.Strided(parts.Data, device.F32, []int64{l.n, laidLeaves}, []int64{1, l.n})}
}

func (l laid) sums() []device.Tensor {
	dots, most, sum, target, labels := l.scope.Alloc(device.F32, l.n), l.scope.Alloc(device.F32, l.n), l.scope.Alloc(device.F32, l.n), l.scope.Alloc(device.F32, l.n), l.scope.Alloc(device.I32, l.n)
	l.dev.RowDots(dots, l.in(1, l.dtype, laidWidth), l.in(2, l.dtype, laidWidth))
	l.dev.Fill(labels, 3)
	l.dev.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: l.in(6, device.F32, laidWidth), Labels: labels, Max: most, Sum: sum, Target: target, Columns: laidWidth - 3})
	return []device.Tensor{dots.Reshape(l.n, 1), most.Reshape(l.n, 1), sum.Reshape(l.n, 1), target.Reshape(l.n, 1)}
}

func rowsAnywhere(t *testing.T, dev *device.Device, d device.DType, op func(l laid) []device.Tensor) {
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	packed := func(x device.Tensor) []byte {
		y := s.Alloc(x.DType, x.Dims()...)
		dev.Copy(y, x)
		return readBytes(dev, y)
	}
	all := op(laid{dev, s, d, 0, laidRows, 0})
	for _, l := range []laid{{from: 0, n: laidRows, shift: 1}, {from: 7, n: 1}, {from: 5, n: 30, shift: 3}, {from: 20, n: 2}} {
		l.dev, l.scope, l.dtype = dev, s, d
		for i, some := range op(l) {
			if !bytes.Equal(packed(some), packed(all[i].Slice(0, l.from, l.n))) {
				t.Errorf("rows %d to %d, at an offset of %d elements: result %d has different bits", l.from, l.from+l.n-1, l.shift, i)
			}
		}
	}
}

// headsAnywhere computes attention of all samples and groups, then of each group of each sample.
func headsAnywhere(t *testing.T, dev *device.Device, d device.DType) {
	const positions, batch, groups, heads, channels = 70, 3, 2, 2, 24
	s := dev.Arena.Scope(device.Activations)
	defer s.Release()
	r := rand.New(rand.NewPCG(3, 3))
	many := func() device.Tensor { return random(dev, s, r, d, positions*batch, groups, heads, channels) }
	single := func() device.Tensor { return random(dev, s, r, d, positions*batch, groups, 1, channels) }
	all := attended{q: many(), k: single(), v: single(), do: many()}
	together := all.run(dev, s, batch)
	for sample := range int64(batch) {
		for group := range int64(groups) {
			of := func(x device.Tensor) device.Tensor { // this sample's rows of this group
				x = x.Slice(1, group, 1).Slice(0, sample, 1)
				return device.Strided(x.Data, x.DType, []int64{positions, 1, x.Shape[2], channels}, []int64{batch * x.Stride[0], x.Stride[1], x.Stride[2], 1})
			}
			one := attended{q: of(all.q), k: of(all.k), v: of(all.v), do: of(all.do)}
			for i, got := range one.run(dev, s, 1) {
				want := s.Alloc(d, got.Dims()...)
				dev.Copy(want, of(together[i]))
				if !bytes.Equal(readBytes(dev, got), readBytes(dev, want)) {
					t.Errorf("group %d of sample %d, computed alone: result %d has different bits", group, sample, i)
				}
			}
		}
	}
}

// attended is what attention and its gradients are made of.
type attended struct{ q, k, v, do device.Tensor }

// run returns output and gradients.
func (a attended) run(dev *device.Device, s *device.Scope, batch int64) []device.Tensor {
	lse := s.Alloc(device.F32, batch, a.q.Shape[1]*a.q.Shape[2], a.q.Shape[0]/batch)
	o, dq, dk, dv := s.Like(a.q), s.Like(a.q), s.Like(a.k), s.Like(a.v)
	f := device.AttentionForwardArgs{O: o, Q: a.q, K: a.k, V: a.v, LSE: lse, Batch: int32(batch), Window: -1, Scale: 0.2}
	dev.AttentionForward(f)
	dev.AttentionBackward(device.AttentionBackwardArgs{DQ: dq, DK: dk, DV: dv, DO: a.do, Forward: f})
	return []device.Tensor{o, dq, dk, dv}
}
