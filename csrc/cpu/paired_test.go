//go:build cgo

package cpu_test

import (
	"bytes"
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"monotron/csrc/device"
)

// bf16Around is a tensor of numbers that have exponents around `middle`; one in 40 is subnormal.
func bf16Around(d *device.Device, r *rand.Rand, middle, exponents int, shape ...int64) device.Tensor {
	t := d.Arena.Alloc(device.Workspace, device.BF16, shape...)
	values := make([]uint16, t.Len())
	for i := range values {
		values[i] = uint16(r.Uint32())&0x807f | uint16(middle+r.IntN(exponents)-exponents/2)<<7
		if r.IntN(40) == 0 {
			values[i] &= 0x807f
		}
	}
	device.WriteSlice(d, t, values)
	return t
}

// sameWithoutAMX fails t if the results of its calls of `made` differ between instruction sets, or from those of a process without
// AMX: whether AMX is used is decided once a process. That process runs the same test, whose hashes go to the file PAIRED.
type sameWithoutAMX struct {
	t      *testing.T
	d      *device.Device
	best   int
	hashes []byte
}

func newSameWithoutAMX(t *testing.T) *sameWithoutAMX {
	d, best := common(t)
	return &sameWithoutAMX{t: t, d: d, best: best}
}

func (s *sameWithoutAMX) compare(made func() []byte, name string, args ...any) {
	s.t.Helper()
	by := func(level int) []byte {
		limitISA(level)
		s.d.Common()
		return made()
	}
	want := by(s.best)
	for level := range s.best {
		if !bytes.Equal(by(level), want) {
			s.t.Errorf(name+": %s has other bits than %s", append(args, instructionSets[level], instructionSets[s.best])...)
		}
	}
	hash := sha256.Sum256(want)
	s.hashes = append(s.hashes, hash[:]...)
}

func (s *sameWithoutAMX) end() {
	if path := os.Getenv("PAIRED"); path != "" {
		if err := os.WriteFile(path, s.hashes, 0o666); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	path := filepath.Join(s.t.TempDir(), "paired")
	c := exec.Command(os.Args[0], "-test.run=^"+s.t.Name()+"$", "-test.count=1")
	c.Env = append(os.Environ(), "MONOTRON_AMX=off", "PAIRED="+path)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("MONOTRON_AMX=off: %v\n%s", err, out)
	}
	if without, err := os.ReadFile(path); err != nil || !bytes.Equal(without, s.hashes) {
		s.t.Errorf("MONOTRON_AMX=off: other bits (%v)", err)
	}
}

// pairedProducts are products of bf16 in the order of AMX: of leaves in one and in two stretches, and of one leaf; on
// a grid, of two samples. Their numbers have exponents around `middle`.
func pairedProducts(d *device.Device, m, n, k int64, middle, exponents int) []device.MatmulArgs {
	r := rand.New(rand.NewPCG(uint64(m), uint64(middle)))
	a, b, c := bf16Around(d, r, middle, exponents, m, k), bf16Around(d, r, middle, exponents, n, k), d.Arena.Alloc(device.Workspace, device.F32, m, n)
	sums, grid, peak := d.Arena.Alloc(device.Workspace, device.F64, m, n), d.Arena.Alloc(device.Workspace, device.F64, 1), d.Arena.Alloc(device.Workspace, device.F32, 1)
	d.Fill(sums, 0)
	d.Fill(peak, 0)
	device.WriteSlice(d, grid, []float64{math.Ldexp(1, 2*(middle-127)-30)})
	turned := func(t device.Tensor) device.Tensor {
		return device.Strided(t.Data, t.DType, []int64{k, t.Shape[0]}, []int64{t.Shape[0], 1})
	}
	return []device.MatmulArgs{
		{C: c, A: a, B: b, TransB: 1, Leaves: 1},
		{C: c, A: a, B: b, TransB: 1, Leaves: 4},
		{C: c, A: a, B: b, TransB: 1, Leaves: 2, Stretches: 2},
		{C: sums, A: turned(a), B: turned(b), TransA: 1, Accumulate: 1, Chunk: 32, Batch: 2, Grid: grid, Peak: peak},
	}
}

// Claim (docs/invariance.md): products of bf16 whose leaves are complete steps of AMX have the same bits by AMX and by the fused
// multiply-adds of every instruction set, also if sums are subnormal.
func TestPairedProducts(t *testing.T) {
	s := newSameWithoutAMX(t)
	for _, size := range [][3]int64{{5, 7, 128}, {33, 70, 512}, {70, 150, 384}, {20, 65, 2176}, {1, 40, 8192}} {
		for _, e := range []struct{ middle, exponents int }{{127, 4}, {127, 40}, {64, 8}, {63, 3}} { // the last two: products are subnormal
			for i, a := range pairedProducts(s.d, size[0], size[1], size[2], e.middle, e.exponents) {
				s.compare(func() []byte {
					s.d.Fill(a.C, 0)
					s.d.Matmul(a)
					return bytesOf(s.d, a.C)
				}, "%v, exponents %v, product %d", size, e, i)
			}
		}
	}
	s.end()
}

// Claim (docs/invariance.md): attention in bf16 has the same bits by AMX and by every instruction set: plain, behind a window, with
// ALiBi, with heads that share keys, also if gradients of scores are subnormal.
func TestPairedAttention(t *testing.T) {
	s := newSameWithoutAMX(t)
	for _, size := range []struct{ queries, channels, perGroup int64 }{{33, 24, 1}, {140, 64, 2}} {
		for _, exponent := range []int{127, 66} { // of values and of gradients of outputs
			for kind, window := range []int32{-1, 20} {
				r := rand.New(rand.NewPCG(uint64(size.queries), uint64(exponent)))
				rows := 2 * size.queries // of two samples
				scores := func(heads int64) device.Tensor { return bf16Around(s.d, r, 127, 4, rows, 2, heads, size.channels) }
				values := func(heads int64) device.Tensor { return bf16Around(s.d, r, exponent, 6, rows, 2, heads, size.channels) }
				n := size.perGroup
				a := device.AttentionForwardArgs{Q: scores(n), K: scores(1), V: values(1), O: values(n), LSE: s.d.Arena.Alloc(device.Workspace, device.F32, 2, 2*n, size.queries), Batch: 2, Window: window, Scale: 0.25}
				if kind == 1 {
					a.Slopes = random(s.d, r, 2*n)
				}
				g := device.AttentionBackwardArgs{DQ: values(n), DK: values(1), DV: values(1), DO: values(n), Forward: a}
				s.compare(func() (all []byte) {
					s.d.AttentionForward(a)
					s.d.AttentionBackward(g)
					for _, x := range []device.Tensor{a.O, a.LSE, g.DQ, g.DK, g.DV} {
						all = append(all, bytesOf(s.d, x)...)
					}
					return all
				}, "%v, exponent %d, window %d", size, exponent, window)
			}
		}
	}
	s.end()
}
