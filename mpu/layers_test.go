package mpu_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inproc"
)

// noise is n numbers that depend on the seed alone.
func noise(seed uint64, n int64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	return x
}

// rank is one of n goroutine ranks that share layers.
type rank struct {
	mpu.Region
	d *device.Device
}

// onRanks runs work on n ranks of the oracle.
func onRanks(t *testing.T, n int, sequence bool, work func(rank) error) {
	t.Helper()
	members := make([]int, n)
	for i := range members {
		members[i] = i
	}
	w := inproc.NewWorld(n)
	err := w.Run(func(number int) error {
		d := ref.Open()
		defer d.Arena.Close()
		tp, err := w.Group(number, "tp", members, d)
		if err != nil {
			return err
		}
		return work(rank{mpu.Region{Group: tp, Sequence: sequence}, d})
	})
	if err != nil {
		t.Error(err)
	}
}

func (r rank) alloc(shape ...int64) device.Tensor {
	return r.d.Arena.Zeroed(device.Workspace, device.F64, shape...)
}

func (r rank) with(x []float64, shape ...int64) device.Tensor {
	t := r.alloc(shape...)
	device.WriteSlice(r.d, t, x)
	return t
}

// same fails unless got is want to rounding.
func (r rank) same(what string, got device.Tensor, want []float64) error {
	packed := got
	if !got.Contiguous() {
		packed = r.alloc(got.Dims()...)
		r.d.Copy(packed, got)
	}
	for i, v := range device.ReadSlice[float64](r.d, packed) {
		if !(math.Abs(v-want[i]) <= 1e-12*math.Max(1, math.Abs(want[i]))) {
			return fmt.Errorf("rank %d of %d: %s, element %d is %g, want %g", r.Rank(), r.Size(), what, i, v, want[i])
		}
	}
	return nil
}

// product is a [m,k]·b [k,n], each transposed where ta, tb are set.
func product(a, b []float64, m, k, n int, ta, tb bool) []float64 {
	out := make([]float64, m*n)
	at := func(x []float64, i, j, rows, columns int, trans bool) float64 {
		if trans {
			return x[j*rows+i]
		}
		return x[i*columns+j]
	}
	for i := range m {
		for j := range n {
			for l := range k {
				out[i*n+j] += at(a, i, l, m, k, ta) * at(b, l, j, k, n, tb)
			}
		}
	}
	return out
}

func columnSums(x []float64, columns int) []float64 {
	sums := make([]float64, columns)
	for i, v := range x {
		sums[i%columns] += v
	}
	return sums
}

func rows(x []float64, width, from, n int) []float64 { return x[from*width : (from+n)*width] }

func columns(x []float64, width, from, n int) []float64 {
	var out []float64
	for at := 0; at < len(x); at += width {
		out = append(out, x[at+from:at+from+n]...)
	}
	return out
}

const tokens, in, out = 8, 12, 20

// numbers are a layer's input, parameters and output gradient, uncut, and what
// one rank computes of them.
type numbers struct {
	x, w, b, dy    []float64
	y, dx, dw, db  []float64
	yWithoutTheSum []float64 // y without bias
}

func fullLayer() numbers {
	n := numbers{x: noise(1, tokens*in), w: noise(2, out*in), b: noise(3, out), dy: noise(4, tokens*out)}
	n.yWithoutTheSum = product(n.x, n.w, tokens, in, out, false, true)
	for i, v := range n.yWithoutTheSum {
		n.y = append(n.y, v+n.b[i%out])
	}
	n.dx = product(n.dy, n.w, tokens, out, in, false, false)
	n.dw = product(n.dy, n.x, out, tokens, in, true, false)
	n.db = columnSums(n.dy, out)
	return n
}

// Claim: a column-parallel layer equals the uncut layer: its columns of the output (or
// all, gathered), its rows of the gradients, and the input's complete gradient; under
// sequence parallelism from and to the rank's rows.
func TestColumnParallelLinear(t *testing.T) {
	n := fullLayer()
	for _, size := range []int{1, 2, 4} {
		for _, sequence := range []bool{false, true} {
			for _, gather := range []bool{false, true} {
				onRanks(t, size, sequence, func(r rank) error {
					l := mpu.NewColumnParallelLinear(r.Region, mpu.LinearConfig{Name: "l", Out: out, In: in, Bias: true, GatherOutput: gather})
					mpu.Allocate(r.d, l.Params(), device.F64, true)
					share, mine := out/size, out/size*r.Rank()
					device.WriteSlice(r.d, l.Weight.Value, rows(n.w, in, mine, share))
					device.WriteSlice(r.d, l.Bias.Value, n.b[mine:mine+share])
					here := int(r.Rows(tokens))
					first := 0
					if r.Cut() {
						first = here * r.Rank()
					}
					x, dx := r.with(rows(n.x, in, first, here), int64(here), in), r.alloc(int64(here), in)
					y, wantY, dy := r.alloc(tokens, int64(share)), columns(n.y, out, mine, share), r.with(columns(n.dy, out, mine, share), tokens, int64(share))
					if gather {
						y, wantY, dy = r.alloc(tokens, out), n.y, r.with(n.dy, tokens, out)
					}
					if err := l.Forward(r.d, nil, y, x, device.NoEpilogue, device.Tensor{}); err != nil {
						return err
					}
					if err := r.same("y", y, wantY); err != nil {
						return err
					}
					if err := l.Backward(r.d, nil, dx, dy, x); err != nil {
						return err
					}
					if err := r.same("dx", dx, rows(n.dx, in, first, here)); err != nil {
						return err
					}
					if err := r.same("dW", l.Weight.Grad, rows(n.dw, in, mine, share)); err != nil {
						return err
					}
					return r.same("db", l.Bias.Grad, n.db[mine:mine+share])
				})
			}
		}
	}
}

// Claim: rows that several ranks hold come after a rank's own in the output, and
// the sum of the holders' gradients is theirs.
func TestSharedRows(t *testing.T) {
	n := fullLayer()
	onRanks(t, 2, false, func(r rank) error {
		own := [][2]int64{{int64(8 * r.Rank()), 8}} // 0..7 and 8..15; both have 16..19
		l := mpu.NewColumnParallelLinear(r.Region, mpu.LinearConfig{Name: "l", Out: out, In: in, Bias: true, Rows: own,
			Shared: &mpu.SharedRows{Rows: [][2]int64{{16, 4}}, Sharers: r.Region}})
		mpu.Allocate(r.d, l.Params(), device.F64, true)
		mine := 8 * r.Rank()
		device.WriteSlice(r.d, l.Weight.Value, rows(n.w, in, mine, 8))
		device.WriteSlice(r.d, l.Bias.Value, n.b[mine:mine+8])
		device.WriteSlice(r.d, l.SharedWeight.Value, rows(n.w, in, 16, 4))
		device.WriteSlice(r.d, l.SharedBias.Value, n.b[16:])
		x, y, dx := r.with(n.x, tokens, in), r.alloc(tokens, 12), r.alloc(tokens, in)
		if err := l.Forward(r.d, nil, y, x, device.NoEpilogue, device.Tensor{}); err != nil {
			return err
		}
		if err := r.same("own columns", y.Slice(1, 0, 8), columns(n.y, out, mine, 8)); err != nil {
			return err
		}
		if err := r.same("shared columns", y.Slice(1, 8, 4), columns(n.y, out, 16, 4)); err != nil {
			return err
		}
		dy := r.alloc(tokens, 12) // of the shared columns each rank has half
		part := columns(n.dy, out, 16, 4)
		for i := range part {
			part[i] /= 2
		}
		r.d.Copy(dy.Slice(1, 0, 8), r.with(columns(n.dy, out, mine, 8), tokens, 8))
		r.d.Copy(dy.Slice(1, 8, 4), r.with(part, tokens, 4))
		if err := l.Backward(r.d, nil, dx, dy, x); err != nil {
			return err
		}
		if err := r.same("dx", dx, n.dx); err != nil {
			return err
		}
		if l.SharedWeight.SumOver == nil || l.SharedWeight.Owner != (r.Rank() == 0) || l.Weight.SumOver != nil || !l.Weight.Owner {
			return fmt.Errorf("rank %d: owners or sums are wrong", r.Rank())
		}
		if err := l.SharedWeight.SumOver.AllReduce(l.SharedWeight.Grad, comm.Sum).Wait(); err != nil {
			return err
		}
		return r.same("dW of the shared rows", l.SharedWeight.Grad, rows(n.dw, in, 16, 4))
	})
}

// Claim: a row-parallel layer equals the uncut layer, its bias left to the caller or
// added; under sequence parallelism it leaves the rank's rows, and the bias's
// gradient is to be summed.
func TestRowParallelLinear(t *testing.T) {
	n := fullLayer()
	for _, size := range []int{1, 2, 4} {
		for _, sequence := range []bool{false, true} {
			for _, full := range []bool{false, true} {
				for _, add := range []bool{false, true} {
					onRanks(t, size, sequence, func(r rank) error {
						l := mpu.NewRowParallelLinear(r.Region, mpu.LinearConfig{Name: "l", Out: out, In: in, Bias: true, InputIsFull: full, AddBias: add})
						mpu.Allocate(r.d, l.Params(), device.F64, true)
						share, mine := in/size, in/size*r.Rank()
						device.WriteSlice(r.d, l.Weight.Value, columns(n.w, in, mine, share))
						device.WriteSlice(r.d, l.Bias.Value, n.b)
						here := int(r.Rows(tokens))
						first := 0
						if r.Cut() {
							first = here * r.Rank()
						}
						x, dx, wantDX := r.with(columns(n.x, in, mine, share), tokens, int64(share)), r.alloc(tokens, int64(share)), columns(n.dx, in, mine, share)
						if full {
							x, dx, wantDX = r.with(n.x, tokens, in), r.alloc(tokens, in), n.dx
						}
						wantY := n.yWithoutTheSum
						if add {
							wantY = n.y
						}
						y, dy := r.alloc(int64(here), out), r.with(rows(n.dy, out, first, here), int64(here), out)
						if err := l.Forward(r.d, nil, y, x); err != nil {
							return err
						}
						if err := r.same("y", y, rows(wantY, out, first, here)); err != nil {
							return err
						}
						if l.BiasValue().Given() == add {
							return fmt.Errorf("the bias is added %v, and left to the caller %v", add, l.BiasValue().Given())
						}
						if err := l.Backward(r.d, nil, dx, dy, x); err != nil {
							return err
						}
						if err := r.same("dx", dx, wantDX); err != nil {
							return err
						}
						if err := r.same("dW", l.Weight.Grad, columns(n.dw, in, mine, share)); err != nil {
							return err
						}
						if l.Bias.SumOver != nil {
							if err := l.Bias.SumOver.AllReduce(l.Bias.Grad, comm.Sum).Wait(); err != nil {
								return err
							}
						}
						return r.same("db", l.Bias.Grad, n.db)
					})
				}
			}
		}
	}
}

// Claim: each mapping's backward is the adjoint of its forward: summed over ranks,
// <dy, forward(x)> = <backward(dy), x>. (A forward that is the identity on a
// replicated input counts it once, its gradient once.)
func TestMappingsAreAdjoint(t *testing.T) {
	const size, n = 4, 3
	for name, m := range map[string]struct {
		in, out  [2]int64 // shapes on a rank
		forward  func(r rank, y, x device.Tensor) error
		backward func(r rank, dx, dy device.Tensor) error
		replicas int // ranks that hold the same x
	}{
		"scatter to region": {[2]int64{5, n * size}, [2]int64{5, n},
			func(r rank, y, x device.Tensor) error {
				r.d.Copy(y, mpu.ScatterToRegionForward(r.Region, x))
				return nil
			},
			func(r rank, dx, dy device.Tensor) error { return mpu.ScatterToRegionBackward(r.Region, r.d, dx, dy) }, size},
		"gather from sequence": {[2]int64{n, 5}, [2]int64{size * n, 5},
			func(r rank, y, x device.Tensor) error { return mpu.GatherFromSequenceForward(r.Region, y, x).Wait() },
			func(r rank, dx, dy device.Tensor) error {
				return mpu.ReduceScatterToSequenceForward(r.Region, dx, dy).Wait()
			}, 1},
		"reduce-scatter to sequence": {[2]int64{size * n, 5}, [2]int64{n, 5},
			func(r rank, y, x device.Tensor) error {
				return mpu.ReduceScatterToSequenceForward(r.Region, y, x).Wait()
			},
			func(r rank, dx, dy device.Tensor) error {
				return mpu.GatherFromSequenceForward(r.Region, dx, dy).Wait()
			}, 1},
		"copy to region": {[2]int64{n, 5}, [2]int64{n, 5},
			func(r rank, y, x device.Tensor) error { r.d.Copy(y, x); return nil },
			func(r rank, dx, dy device.Tensor) error {
				r.d.Copy(dx, dy)
				return mpu.CopyToRegionBackward(r.Region, dx).Wait()
			}, size},
	} {
		t.Run(name, func(t *testing.T) {
			var left, right [size]float64
			onRanks(t, size, true, func(r rank) error {
				seed := uint64(10 + r.Rank())
				if m.replicas > 1 {
					seed = 10
				}
				hx, hdy := noise(seed, m.in[0]*m.in[1]), noise(uint64(50+r.Rank()), m.out[0]*m.out[1])
				x, dy, y, dx := r.with(hx, m.in[:]...), r.with(hdy, m.out[:]...), r.alloc(m.out[:]...), r.alloc(m.in[:]...)
				if err := m.forward(r, y, x); err != nil {
					return err
				}
				if err := m.backward(r, dx, dy); err != nil {
					return err
				}
				for i, v := range device.ReadSlice[float64](r.d, y) {
					left[r.Rank()] += v * hdy[i]
				}
				for i, v := range device.ReadSlice[float64](r.d, dx) {
					right[r.Rank()] += v * hx[i] / float64(m.replicas)
				}
				return nil
			})
			a, b := 0.0, 0.0
			for i := range left {
				a, b = a+left[i], b+right[i]
			}
			if !(math.Abs(a-b) < 1e-12*math.Abs(a)) {
				t.Errorf("<dy, forward(x)> = %g, <backward(dy), x> = %g", a, b)
			}
		})
	}
}

// Claim: a GPU has the logits of eight times the rows at once, and what a plan counts of them
// is what they are.
func TestHeadRows(t *testing.T) {
	for name, rows := range map[string]int64{"cuda": 8192, "cpu": 1024, "ref": 1024} {
		d := device.Counting(name, nil, device.Watching{})
		if got := mpu.HeadRows(d); got != rows {
			t.Errorf("%s: %d rows, want %d", name, got, rows)
		}
		const tokens, h, vocabulary = 10000, 64, 512
		alone, err := inproc.NewWorld(1).Group(0, "tp", []int{0}, d)
		if err != nil {
			t.Fatal(err)
		}
		weight := mpu.Uncut("e", mpu.Init{}, vocabulary, h)
		mpu.Allocate(d, []*mpu.Param{weight}, device.BF16, true)
		alloc := func(t device.DType, shape ...int64) device.Tensor {
			return d.Arena.Alloc(device.Workspace, t, shape...)
		}
		head := mpu.NewVocabParallelHead(mpu.Region{Group: alone}, weight, 0, vocabulary)
		err = head.Loss(d, mpu.LossArgs{Hidden: alloc(device.BF16, tokens, h), Labels: alloc(device.I32, tokens), Loss: alloc(device.F32, tokens),
			DHidden: alloc(device.BF16, tokens, h), Weight: alloc(device.F32, tokens)})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.Arena.Usage().Peak[device.Activations], rows*(vocabulary*(4+2)+3*4); got != want {
			t.Errorf("%s: %d bytes of logits, their gradients and statistics, want %d", name, got, want)
		}
	}
}

// Claim: with Rows the other tokens have no loss and no gradient, and the rows have those that they have without; weights
// that depend on the losses (Weigh) are set before the first gradient, whether the logits of all rows fit or not.
func TestHeadOfSomeRows(t *testing.T) {
	const h, vocabulary = 6, 16
	for _, c := range []struct {
		tokens int64
		rows   [][2]int64
	}{{100, nil}, {100, [][2]int64{{3, 20}, {90, 10}}}, {100, [][2]int64{}}, {3000, [][2]int64{{0, 1}, {100, 1500}, {2000, 900}}}} {
		onRanks(t, 1, false, func(r rank) error {
			weight := mpu.Uncut("e", mpu.Init{}, vocabulary, h)
			mpu.Allocate(r.d, []*mpu.Param{weight}, device.F64, true)
			device.WriteSlice(r.d, weight.Value, noise(2, vocabulary*h))
			labels := r.d.Arena.Alloc(device.Workspace, device.I32, c.tokens)
			r.d.Fill(labels, 5)
			head := mpu.NewVocabParallelHead(r.Region, weight, 0, vocabulary)
			within := func(i int64) bool {
				return c.rows == nil || slices.ContainsFunc(c.rows, func(s [2]int64) bool { return i >= s[0] && i < s[0]+s[1] })
			}
			// All rows, where those that are left out weigh nothing.
			weights := noise(3, c.tokens)
			for i := range weights {
				if !within(int64(i)) {
					weights[i] = 0
				}
			}
			all := mpu.LossArgs{Hidden: r.with(noise(1, c.tokens*h), c.tokens, h), Labels: labels, Loss: r.alloc(c.tokens), DHidden: r.alloc(c.tokens, h), Weight: r.with(weights, c.tokens)}
			some := all
			if err := head.Loss(r.d, all); err != nil {
				return err
			}
			loss, table := device.ReadSlice[float64](r.d, all.Loss), device.ReadSlice[float64](r.d, weight.Grad)
			for i := range loss {
				if !within(int64(i)) {
					loss[i] = 0
				}
			}
			// The same by Rows and Weigh.
			r.d.Fill(weight.Grad, 0)
			some.Loss, some.DHidden, some.Weight, some.Rows = r.alloc(c.tokens), r.alloc(c.tokens, h), r.alloc(c.tokens), c.rows
			some.Weigh = func() error {
				device.WriteSlice(r.d, some.Weight, weights)
				return r.same("losses before the weights", some.Loss, loss)
			}
			if err := head.Loss(r.d, some); err != nil {
				return err
			}
			return errors.Join(r.same("loss", some.Loss, loss), r.same("dHidden", some.DHidden, device.ReadSlice[float64](r.d, all.DHidden)), r.same("dTable", weight.Grad, table))
		})
	}
}

// Claim: the vocabulary cut over ranks, with padding on the last and with a rank
// that has nothing else, gives the losses and gradients of the uncut one, for more
// tokens than one pass of the head takes.
func TestVocabParallelHead(t *testing.T) {
	const many, h, kept, padded = 1024 + 37, 6, 9, 16
	hidden, table, weight := noise(1, many*h), noise(2, kept*h), noise(3, many)
	labels := make([]int32, many)
	for i := range labels {
		labels[i] = int32(i * 5 % kept)
	}
	loss, dlogits := make([]float64, many), product(hidden, table, many, h, kept, false, true)
	for i := range loss {
		row := dlogits[i*kept:][:kept]
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(v)
		}
		loss[i] = math.Log(sum) - row[labels[i]]
		for j, v := range row {
			row[j] = math.Exp(v) / sum * weight[i]
		}
		row[labels[i]] -= weight[i]
	}
	dtable, dhidden := product(dlogits, hidden, kept, many, h, true, false), product(dlogits, table, many, kept, h, false, false)

	for _, size := range []int{1, 2, 4} {
		for _, sequence := range []bool{false, true} {
			if sequence && many%size != 0 {
				continue
			}
			onRanks(t, size, sequence, func(r rank) error {
				e := mpu.NewVocabParallelEmbedding(r.Region, "e", kept, padded, h, mpu.Init{})
				mpu.Allocate(r.d, []*mpu.Param{e.Weight}, device.F64, true)
				local := make([]float64, padded/size*h)
				copy(local, table[min(len(table), int(e.Start)*h):])
				device.WriteSlice(r.d, e.Weight.Value, local)
				head := mpu.NewVocabParallelHead(r.Region, e.Weight, e.Start, kept)
				here := int(r.Rows(many))
				first := 0
				if r.Cut() {
					first = here * r.Rank()
				}
				ids := r.d.Arena.Alloc(device.Workspace, device.I32, many)
				device.WriteSlice(r.d, ids, labels)
				a := mpu.LossArgs{Hidden: r.with(rows(hidden, h, first, here), int64(here), h), Labels: ids, Loss: r.alloc(many), DHidden: r.alloc(int64(here), h), Weight: r.with(weight, many)}
				if err := head.Loss(r.d, a); err != nil {
					return err
				}
				if err := r.same("loss", a.Loss, loss); err != nil {
					return err
				}
				if err := r.same("dHidden", a.DHidden, rows(dhidden, h, first, here)); err != nil {
					return err
				}
				want := make([]float64, len(local))
				copy(want, dtable[min(len(dtable), int(e.Start)*h):])
				return r.same("dTable", e.Weight.Grad, want)
			})
		}
	}
}
