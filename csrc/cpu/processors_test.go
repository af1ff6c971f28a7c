//go:build cgo

package cpu_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
	"monotron/internal/drawn"
)

// common is the device with the vectors that --layout-invariant uses, until the test ends, and the best vectors of this processor.
func common(t testing.TB) (d *device.Device, best int) {
	t.Helper()
	best = bestISA(t)
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		limitISA(best)
		d.Close()
	})
	d.Common()
	return d, best
}

// Claim (docs/invariance.md): with --layout-invariant all processors give the same bits: those with
// AVX-512, with AVX2, and with neither. SHARE=n (9): one case in n of every op.
func TestCommonInstructions(t *testing.T) {
	d, best := common(t)
	if best == 0 {
		t.Skip("this processor has portable vectors alone")
	}
	as := func(level int) func() {
		return func() {
			limitISA(level)
			d.Common()
		}
	}
	for level := range best {
		t.Run(instructionSets[level], func(t *testing.T) { devicetest.SameBitsAfter(t, d, drawn.ShareOr(9), as(best), as(level)) })
	}
}

// Claim (simd.h): portable C rounds x*y + z once, as an instruction does, also where a result is halfway
// between two numbers, subnormal or too large.
func TestFusedByParts(t *testing.T) {
	d, best := common(t)
	if best == 0 {
		t.Skip("this processor has portable vectors alone")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, bits := range []int{24, 12, 6} { // of a number: products of short ones end up halfway more often
		for _, e := range []struct{ middle, exponents int }{{127, 4}, {127, 30}, {127, 250}, {57, 20}} { // the last: products are subnormal
			a, b, c := random(d, r, 200, 3), random(d, r, 300, 3), random(d, r, 200, 300)
			for _, x := range []device.Tensor{a, b} {
				values := make([]float32, x.Len())
				for i := range values {
					values[i] = math.Float32frombits(uint32(e.middle+r.IntN(e.exponents)-e.exponents/2)<<23 | r.Uint32()>>(32-bits)<<(24-bits)&0x7fffff | r.Uint32()&0x80000000)
				}
				device.WriteSlice(d, x, values)
			}
			made := func(level int) []byte {
				limitISA(level)
				d.Common()
				d.Matmul(device.MatmulArgs{C: c, A: a, B: b, TransB: 1, Leaves: 1})
				return bytesOf(d, c)
			}
			if want := made(best); !bytes.Equal(made(0), want) {
				t.Errorf("numbers of %d bits, exponents %v: other bits", bits, e)
			}
		}
	}
}

// TestListBits writes what every op makes of its cases with --layout-invariant to the file BITS:
// tests/proofs/invariance/processors.sh compares those of several processors.
func TestListBits(t *testing.T) {
	path := os.Getenv("BITS")
	if path == "" {
		t.Skip("BITS names no file")
	}
	d, _ := common(t)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	devicetest.ListBits(t, d, drawn.Share(), f)
}

// Claim (functions.h): kernels call no function of libm whose last bits differ by release and processor.
func TestNoFunctionsOfLibm(t *testing.T) {
	call := regexp.MustCompile(`\b(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sinh|cosh|tanh|atan|atan2|erf|erfc|cbrt|hypot|tgamma|lgamma)f?\(`)
	files, err := filepath.Glob("*.[ch]")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		comments := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
		if found := call.FindString(string(comments.ReplaceAll(raw, nil))); found != "" {
			t.Errorf("%s calls %s...): functions.h and simd.h have functions with the same bits on every processor", file, found)
		}
	}
}
