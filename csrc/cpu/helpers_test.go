package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// settings lists what is tested besides the machine's own choice: each lowers
// the instruction set or leaves oneDNN out. They are read once a process, so a
// test runs itself again under each.
var settings = []string{"MONOTRON_ONEDNN=off", "MONOTRON_CPU_ISA=avx512", "MONOTRON_CPU_ISA=avx2 MONOTRON_ONEDNN=off", "MONOTRON_CPU_ISA=portable MONOTRON_ONEDNN=off"}

// underEach runs this test here and, in a process each, under every setting.
func underEach(t *testing.T, body func(t *testing.T)) {
	body(t)
	if os.Getenv("MONOTRON_TEST_CHILD") != "" || t.Failed() {
		return
	}
	for _, s := range settings {
		t.Run(s, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^"+rootName(t)+"$", "-test.count=1")
			c.Env = append(os.Environ(), "MONOTRON_TEST_CHILD=1")
			c.Env = append(c.Env, fields(s)...)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// pair is one case on the cpu and on ref: equal inputs, own outputs.
type pair struct {
	t        *testing.T
	rng      *rand.Rand
	cpu, ref *device.Device
}

func newPair(t *testing.T, threads int) *pair {
	device.SetThreads(threads)
	c, err := Open()
	if err != nil {
		t.Skip(err)
	}
	return &pair{t, rand.New(rand.NewPCG(1, 2)), c, ref.Open()}
}

// both is a tensor on each device.
type both struct{ cpu, ref device.Tensor }

func (b both) given() bool { return b.cpu.Given() }

// random is normal values times scale; the rows lie pad elements apart.
func (p *pair) random(dtype device.DType, scale float64, pad int64, shape ...int64) both {
	full := append([]int64{}, shape...)
	full[len(full)-1] += pad
	n := int64(1)
	for _, s := range full {
		n *= s
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = p.rng.NormFloat64() * scale
	}
	return p.filled(dtype, values, shape, full)
}

func (p *pair) filled(dtype device.DType, values []float64, shape, full []int64) both {
	var b both
	for _, d := range []*device.Device{p.cpu, p.ref} {
		t := d.Arena.Alloc(device.Activations, dtype, full...)
		device.StoreFloat64(t.Data, dtype, values)
		t = t.Slice(int(t.Rank)-1, 0, shape[len(shape)-1])
		if d == p.cpu {
			b.cpu = t
		} else {
			b.ref = t
		}
	}
	return b
}

// same fails when a result differs from ref's by more than tol of its largest value.
func (p *pair) same(what string, b both, tol float64) {
	p.t.Helper()
	got, want := values(b.cpu), values(b.ref)
	top, worst, at := 0.0, 0.0, 0
	for i := range want {
		top = math.Max(top, math.Abs(want[i]))
		if e := math.Abs(got[i] - want[i]); !(e <= worst) {
			worst, at = e, i
		}
	}
	if !(worst <= tol*math.Max(top, 1e-30)) {
		p.t.Errorf("%s: element %d is %g, ref says %g (largest %g)", what, at, got[at], want[at], top)
	}
}

// values is every element of the buffer under t's rows, padding included, so
// that a write beside the tensor shows.
func values(t device.Tensor) []float64 {
	n := t.Len()
	if !t.Contiguous() {
		n = t.Shape[0] * t.Stride[0]
	}
	v := make([]float64, n)
	device.LoadFloat64(v, t.DType, t.Data)
	return v
}

func epsilon(d device.DType) float64 {
	switch d {
	case device.BF16:
		return 1.0 / 128
	case device.F16:
		return 1.0 / 1024
	}
	return 1e-5
}

// done ends a case: no trouble so far, all memory back.
func (p *pair) done() {
	p.t.Helper()
	if err := p.cpu.Sync(); err != nil {
		p.t.Fatal(err)
	}
}

func rootName(t *testing.T) string {
	name := t.Name()
	for i := range name {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return name
}

func fields(s string) (out []string) {
	var a, b string
	n, _ := fmt.Sscan(s, &a, &b)
	return []string{a, b}[:n]
}
