//go:build cgo

package cuda_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
)

// sides is a model whose products and attention are timed, of one rank's micro-batch.
type sides struct {
	name                          string
	layers, hidden, heads         int64
	vocabulary, samples, sequence int64
	budget                        time.Duration // for each product
}

// A head's logits are made for 8192 tokens at a time.
func (m sides) products() []device.Product {
	tokens := m.samples * m.sequence
	var all []device.Product
	for _, p := range []device.Product{{M: tokens, N: 3 * m.hidden, K: m.hidden}, {M: tokens, N: m.hidden, K: m.hidden}, {M: tokens, N: 4 * m.hidden, K: m.hidden},
		{M: tokens, N: m.hidden, K: 4 * m.hidden}, {M: min(tokens, 8192), N: m.vocabulary, K: m.hidden, Wide: true}} {
		all = append(all, device.Product{M: p.M, N: p.N, K: p.K, TransB: true, Wide: p.Wide}, device.Product{M: p.M, N: p.K, K: p.N},
			device.Product{M: p.N, N: p.K, K: p.M, TransA: true, Accumulate: true})
	}
	return all
}

// times is how often a step of one micro-batch makes the i-th product.
func (m sides) times(i int) float64 {
	if i < 12 {
		return float64(m.layers)
	}
	return float64(max(1, m.samples*m.sequence/8192))
}

// Claim (docs/cuda.md, "Own kernels or libraries"): the figures that decide between the vendor's libraries
// and our own kernels can be had in one run, side by side. It prints them.
func TestSideBySide(t *testing.T) {
	models := []sides{{"gpt2-124m", 12, 768, 12, 50304, 16, 1024, 60 * time.Millisecond}, {"gpt2-1.5b", 48, 1600, 25, 50304, 8, 1024, 60 * time.Millisecond}}
	vendor := open(t)
	defer vendor.Close()
	if strings.Contains(os.Getenv(cuda.LibraryVariable), "cudaemu") {
		models = []sides{{"tiny", 1, 32, 2, 64, 1, 16, time.Microsecond}}
	}
	t.Setenv("MONOTRON_CUBLASLT", "off")
	own, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, m := range models {
		m.compare(t, vendor, own)
	}
}

func (m sides) compare(t *testing.T, vendor, own *device.Device) {
	var products [2]float64 // seconds of a step
	for i, p := range m.products() {
		var speeds [2]float64
		for j, d := range []*device.Device{vendor, own} {
			s, err := device.MatmulSpeed(d, device.BF16, p, m.budget)
			if err != nil {
				t.Fatal(err)
			}
			if speeds[j] = s.Burst; !(s.Burst > 0) || math.IsInf(s.Burst, 1) {
				t.Fatalf("%s: %g operations a second", p, s.Burst)
			}
			products[j] += m.times(i) * 2 * float64(p.M) * float64(p.N) * float64(p.K) / s.Burst
		}
		fmt.Printf("%s product %s: %s %.1f TFLOP/s, ours %.1f, ours takes %.2f times as long\n", m.name, p, vendor.Products(), speeds[0]/1e12, speeds[1]/1e12, speeds[0]/speeds[1])
	}
	fused, why := m.attention(t, vendor, true)
	ours, _ := m.attention(t, own, false)
	if why != nil {
		fmt.Printf("%s attention: cuDNN not: %v; ours %.2f ms a layer\n", m.name, why, ours*1e3)
	} else {
		fmt.Printf("%s attention, forward and backward: cuDNN %.2f ms a layer, ours %.2f, %.2f times as long\n", m.name, fused*1e3, ours*1e3, ours/fused)
	}
	fmt.Printf("%s a step of %d x %d tokens: products %.2f ms by %s, %.2f by ours; attention %.2f by cuDNN (0: not), %.2f by ours\n", m.name, m.samples, m.sequence,
		products[0]*1e3, vendor.Products(), products[1]*1e3, fused*1e3*float64(m.layers), ours*1e3*float64(m.layers))
}

// attention is the seconds of forward and backward of a layer; the error says why cuDNN's was
// not taken.
func (m sides) attention(t *testing.T, d *device.Device, fuse bool) (seconds float64, why error) {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	tokens, c := m.samples*m.sequence, m.hidden/m.heads
	random := s.Alloc(device.F32, tokens*m.hidden)
	d.Uniform(device.UniformArgs{Out: random, Step: s.Alloc(device.I64, 1)})
	heads := func() device.Tensor {
		x := s.Alloc(device.BF16, tokens, m.heads, 1, c)
		d.Copy(x.Reshape(tokens*m.hidden), random) // constants would draw less power
		return x
	}
	a := device.AttentionBackwardArgs{DQ: heads(), DK: heads(), DV: heads(), DO: heads()}
	a.Forward = device.AttentionForwardArgs{O: heads(), Q: heads(), K: heads(), V: heads(), LSE: s.Alloc(device.F32, m.samples, m.heads, m.sequence),
		Batch: int32(m.samples), Window: -1, Scale: float32(1 / math.Sqrt(float64(c)))}
	if fuse {
		if err := d.FuseAttention(a, 8<<30); err != nil {
			return 0, err
		}
		defer d.OwnAttention()
	}
	both := func() {
		d.AttentionForward(a.Forward)
		d.AttentionBackward(a)
	}
	both()
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	begun, rounds := time.Now(), 0
	for rounds == 0 || time.Since(begun) < m.budget {
		both()
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		rounds++
	}
	return time.Since(begun).Seconds() / float64(rounds), nil
}
