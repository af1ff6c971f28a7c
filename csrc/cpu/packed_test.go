//go:build cgo

package cpu_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/drawn"
)

// big is a product whose packed operands do not fit into the outer cache at once,
// so that it goes through in chunks along its longest dimension.
type big struct {
	m, n, k                    int64
	transA, transB, accumulate bool
}

func (b big) String() string { return fmt.Sprintf("%dx%dx%d", b.m, b.n, b.k) }

var chunked = []big{
	{m: 250, n: 260, k: 30011, transB: true}, {m: 250, n: 260, k: 30011}, {m: 260, n: 250, k: 30011, transA: true, accumulate: true}, // along k
	{m: 300, n: 20009, k: 800, transB: true}, {m: 300, n: 20009, k: 801}, // along n
	{m: 20009, n: 790, k: 800, transA: true, accumulate: true}, // along m
	{m: 300, n: 28064, k: 70, transB: true},                    // C so large that it is written around the caches
}

// element is what operand `salt` holds at index i: an integer from -3 to 3 over
// `divisor`, with no regularity along either dimension.
func element(i, salt, divisor int64) float64 {
	h := uint64(i+salt<<40) * 0x9e3779b97f4a7c15
	return float64(int64(h>>60%7)-3) / float64(divisor)
}

// run multiplies on a device of its own and returns C, f32.
func (b big) run(t *testing.T, dtype device.DType, divisor int64) []float32 {
	t.Helper()
	d := opened(t)
	defer d.Arena.Close()
	return b.on(d, dtype, divisor)
}

func opened(t testing.TB) *device.Device {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// on multiplies on a device and returns C, f32.
func (b big) on(d *device.Device, dtype device.DType, divisor int64) []float32 {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	operand := func(rows, columns, salt int64, trans bool) device.Tensor {
		x := s.Alloc(dtype, rows, columns)
		if trans {
			x = s.Alloc(dtype, columns, rows)
		}
		values := make([]float64, x.Len())
		for i := range values {
			values[i] = element(int64(i), salt, divisor)
		}
		device.WriteSlice(d, x, device.FromFloat64(dtype, values))
		return x
	}
	a := device.MatmulArgs{A: operand(b.m, b.k, 1, b.transA), B: operand(b.k, b.n, 2, b.transB), C: s.Alloc(device.F32, b.m, b.n)}
	for at, on := range map[*int32]bool{&a.TransA: b.transA, &a.TransB: b.transB, &a.Accumulate: b.accumulate} {
		if on {
			*at = 1
		}
	}
	d.Fill(a.C, 5)
	d.Matmul(a)
	return device.ReadSlice[float32](d, a.C)
}

// sum is C's element (i, j) by the definition.
func (b big) sum(i, j int64) float32 {
	total := 0.0
	for k := range b.k {
		x, y := i*b.k+k, k*b.n+j
		if b.transA {
			x = k*b.m + i
		}
		if b.transB {
			y = j*b.k + k
		}
		total += element(x, 1, 1) * element(y, 2, 1)
	}
	if b.accumulate {
		total += 5
	}
	return float32(total)
}

// Claim (gemm_packed.c): products that go through in chunks are exact where every
// sum is, in the middle and at the edges of chunks and tiles.
func TestChunkedProducts(t *testing.T) {
	best := bestISA(t)
	for _, c := range []struct {
		dtype device.DType
		level int
	}{{device.BF16, best}, {device.F16, best}, {device.F16, min(1, best)}} {
		t.Run(fmt.Sprint(c.dtype, instructionSets[c.level]), func(t *testing.T) {
			limitISA(c.level)
			for _, b := range drawn.Part(t, chunked, 3) {
				b.exact(t, c.dtype)
			}
		})
	}
}

// exact requires some elements of C, among them the last, to be their sums exactly.
func (b big) exact(t *testing.T, dtype device.DType) {
	t.Helper()
	got := b.run(t, dtype, 1)
	last := b.m*b.n - 1
	for at := int64(0); at < last; at += b.m*b.n/200 + 1 {
		if i, j := at/b.n, at%b.n; got[at] != b.sum(i, j) {
			t.Fatalf("%v: C[%d,%d] = %g, want %g", b, i, j, got[at], b.sum(i, j))
		}
	}
	if got[last] != b.sum(b.m-1, b.n-1) {
		t.Fatalf("%v: last element is %g, want %g", b, got[last], b.sum(b.m-1, b.n-1))
	}
}

// Claim: bits of chunked products do not depend on the number of threads.
func TestChunkedProductsSameBits(t *testing.T) {
	defer device.SetThreads(runtime.GOMAXPROCS(0))
	for _, b := range drawn.Part(t, chunked, 3) {
		device.SetThreads(1)
		one := b.run(t, device.BF16, 7)
		device.SetThreads(3)
		if three := b.run(t, device.BF16, 7); !bytes.Equal(device.AsBytes(one), device.AsBytes(three)) {
			t.Errorf("%v: bits differ at 1 and 3 threads", b)
		}
	}
}

// Claim: whatever of a product is packed ahead, one operand, both or none, every
// corner of it is right.
func TestProductsOfEveryCut(t *testing.T) {
	d := opened(t)
	defer d.Arena.Close()
	for _, dtype := range []device.DType{device.BF16, device.F16} {
		for _, m := range []int64{32, 128, 193, 300, 600} {
			for _, n := range []int64{64, 160, 512, 1600} {
				for _, k := range []int64{64, 128, 512, 800} {
					for trans := range 4 {
						b := big{m: m, n: n, k: k, transA: trans&1 != 0, transB: trans&2 != 0, accumulate: trans == 1}
						got := b.on(d, dtype, 1)
						for _, at := range [][2]int64{{0, 0}, {0, n - 1}, {m - 1, 0}, {m - 1, n - 1}, {m / 2, n / 2}} {
							if x := got[at[0]*n+at[1]]; x != b.sum(at[0], at[1]) {
								t.Fatalf("%s %v, transposed %v %v: C%v = %g, want %g", dtype, b, b.transA, b.transB, at, x, b.sum(at[0], at[1]))
							}
						}
					}
				}
			}
		}
	}
}

// Claim (mpu/tiles.go): by our own kernels an element of a product is the same bits whatever other
// rows and columns are made with it, also in a part with few columns, which is made as its transpose; so a weight can
// come in parts.
func TestPartsOfAProductAreTheProduct(t *testing.T) {
	d := opened(t)
	defer d.Arena.Close()
	for _, b := range []big{{m: 250, n: 520, k: 30011, transB: true}, {m: 250, n: 520, k: 30011}, {m: 250, n: 520, k: 30011, transA: true, accumulate: true}, {m: 64, n: 96, k: 100}} {
		s := d.Arena.Scope(device.Workspace)
		operand := func(rows, columns int64, trans bool) device.Tensor {
			x := s.Alloc(device.F16, []int64{rows, columns}[flag(trans)], []int64{columns, rows}[flag(trans)])
			values(d, x)
			return x
		}
		a := device.MatmulArgs{A: operand(b.m, b.k, b.transA), B: operand(b.k, b.n, b.transB), C: s.Alloc(device.F32, b.m, b.n),
			TransA: flag(b.transA), TransB: flag(b.transB), Accumulate: flag(b.accumulate)}
		parts := s.Alloc(device.F32, b.m, b.n)
		d.Fill(a.C, 5)
		d.Fill(parts, 5)
		d.Matmul(a)
		for _, rows := range [][2]int64{{0, 48}, {48, b.m - 48}} {
			for _, columns := range [][2]int64{{0, 16}, {16, 64}, {80, b.n - 80}} {
				part := a
				part.A, part.B = a.A.Slice(int(a.TransA), rows[0], rows[1]), a.B.Slice(1-int(a.TransB), columns[0], columns[1])
				part.C = parts.Slice(0, rows[0], rows[1]).Slice(1, columns[0], columns[1])
				d.Matmul(part)
			}
		}
		if !bytes.Equal(device.AsBytes(device.ReadSlice[float32](d, a.C)), device.AsBytes(device.ReadSlice[float32](d, parts))) {
			t.Errorf("%v %+v: bits differ in parts", b, b)
		}
		s.Release()
	}
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
