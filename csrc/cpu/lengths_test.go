//go:build cgo

package cpu_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"monotron/csrc/device"
)

// lengthCalls are attention's two calls on one sequence: of one head of twelve, as they lie
// next to each other in a model.
func lengthCalls(dev *device.Device, s *device.Scope, dtype device.DType, seq int64) (forward, backward func()) {
	const heads, channels = 12, 64
	head := func() device.Tensor {
		t := s.Alloc(dtype, seq, heads, 1, channels)
		values := make([]float64, t.Len())
		for i := range values {
			values[i] = math.Sin(float64(i) * 1.7)
		}
		dev.Write(t, device.FromFloat64(dtype, values))
		return t.Slice(1, 0, 1)
	}
	a := device.AttentionForwardArgs{Q: head(), K: head(), V: head(), O: head(), LSE: s.Alloc(device.F32, 1, 1, seq), Batch: 1, Window: -1, Scale: 0.125}
	g := device.AttentionBackwardArgs{DQ: head(), DK: head(), DV: head(), DO: head(), Forward: a}
	return func() { dev.AttentionForward(a) }, func() { dev.AttentionBackward(g) }
}

// Claim (attention_forward.h): blocks of queries that go through many keys side by side have
// the bits of each by itself: plain, in documents behind a window, with ALiBi.
func TestBlocksSideBySide(t *testing.T) {
	const seq, heads, channels, block = 1300, 2, 64, 64
	dev := open(t)
	defer dev.Close()
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		for _, mask := range []string{"plain", "documents", "slopes"} {
			s := dev.Arena.Scope(device.Activations)
			made := func() device.Tensor {
				x := s.Alloc(dtype, seq, heads, 1, channels)
				values := make([]float64, x.Len())
				for i := range values {
					values[i] = math.Sin(float64(i) * 1.7)
				}
				dev.Write(x, device.FromFloat64(dtype, values))
				return x
			}
			a := device.AttentionForwardArgs{Q: made(), K: made(), V: made(), Batch: 1, Window: -1, Scale: 0.125}
			switch mask {
			case "documents":
				starts := make([]int32, seq)
				for i := range starts {
					starts[i] = int32(i / 700 * 700)
				}
				a.DocStart, a.Window = s.Alloc(device.I32, 1, seq), 400
				device.WriteSlice(dev, a.DocStart, starts)
			case "slopes":
				a.Slopes = s.Alloc(device.F32, heads)
				device.WriteSlice(dev, a.Slopes, []float32{0.5, 0.001})
			}
			outcome := func(o, lse device.Tensor) ([]byte, []byte) {
				raw, sums := make([]byte, o.Bytes()), make([]byte, lse.Bytes())
				dev.Read(raw, o)
				dev.Read(sums, lse)
				return raw, sums
			}
			full := a
			full.O, full.LSE = s.Alloc(dtype, seq, heads, 1, channels), s.Alloc(device.F32, 1, heads, seq)
			dev.AttentionForward(full)
			alone := s.Alloc(dtype, seq, heads, 1, channels)
			for first := int64(0); first < seq; first += block {
				n := min(block, seq-first)
				one := a
				one.Q, one.O, one.LSE, one.QOffset = a.Q.Slice(0, first, n), alone.Slice(0, first, n), s.Alloc(device.F32, 1, heads, n), int32(first)
				if a.DocStart.Given() {
					one.DocStart = a.DocStart.Slice(1, first, n)
				}
				dev.AttentionForward(one)
				for head := range int64(heads) {
					_, got := outcome(full.O, full.LSE.Slice(1, head, 1).Slice(2, first, n))
					_, want := outcome(alone, one.LSE.Slice(1, head, 1))
					if !bytes.Equal(got, want) {
						t.Errorf("%s, %s: sums of head %d from query %d on differ", dtype, mask, head, first)
					}
				}
			}
			got, _ := outcome(full.O, full.LSE)
			if want, _ := outcome(alone, full.LSE); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: outputs differ", dtype, mask)
			}
			if err := dev.Sync(); err != nil {
				t.Fatal(err)
			}
			s.Release()
		}
	}
}

// BenchmarkAttentionByLength reports attention's rate over 32,768 positions and over
// 2,048, on one thread, alternating: -benchtime 3x is three of each.
func BenchmarkAttentionByLength(b *testing.B) {
	const short, long = 2048, 32768
	threads := device.SharedPool().Threads()
	device.SetThreads(1)
	defer device.SetThreads(threads)
	dev := open(b)
	defer dev.Close()
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		s := dev.Arena.Scope(device.Activations)
		shortForward, shortBackward := lengthCalls(dev, s, dtype, short)
		longForward, longBackward := lengthCalls(dev, s, dtype, long)
		shortForward() // backward takes what forward made
		longForward()
		for _, c := range []struct {
			name        string
			short, long func()
			products    float64
		}{{"forward", shortForward, longForward, 2}, {"backward", shortBackward, longBackward, 5}} {
			b.Run(fmt.Sprintf("%s/%s", dtype, c.name), func(b *testing.B) {
				const calls = 32 // of the short one, on either side of the long one
				var took [2]time.Duration
				timed := func(which, n int, call func()) {
					began := time.Now()
					for range n {
						call()
					}
					took[which] += time.Since(began)
				}
				c.short()
				for range b.N {
					timed(0, calls, c.short)
					timed(1, 1, c.long)
					timed(0, calls, c.short)
				}
				if err := dev.Sync(); err != nil {
					b.Fatal(err)
				}
				each := func(seq float64) float64 { return c.products * seq * seq * 64 * float64(b.N) / 1e9 } // half of 2·s²·d, causal
				at := [2]float64{2 * calls * each(short) / took[0].Seconds(), each(long) / took[1].Seconds()}
				b.ReportMetric(at[0], "GFLOP/s-of-2048")
				b.ReportMetric(at[1], "GFLOP/s-of-32768")
				b.ReportMetric(at[1]/at[0], "of-short")
			})
		}
		s.Release()
	}
}
