package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
)

// Claim: a shape's numbers come out of it, and the rest distinguishes dtypes and kinds of products.
func TestForm(t *testing.T) {
	for _, c := range []struct {
		shape, form string
		numbers     []float64
	}{
		{"bf16 512x768x64 tn +=", "bf16 #x#x# tn +=", []float64{512, 768, 64}},
		{"f32[64 2 192]/[768 384 1]", "f32[# # #]/[# # #]", []float64{64, 2, 192, 768, 384, 1}},
		{"i64[1]", "i64[#]", []float64{1}},
		{"none", "none", nil},
		{"", "", nil},
	} {
		form, numbers := Form(c.shape)
		if form != c.form || !slices.Equal(numbers, c.numbers) {
			t.Errorf("%q: %q %v", c.shape, form, numbers)
		}
	}
}

// Claim: a measured shape takes what it took; one between measured shapes lies between them;
// with seconds that are the sum of operations and bytes at fixed rates every other shape is
// found to a tenth.
func TestOpSeconds(t *testing.T) {
	took := func(m, n, k float64) (device.Work, float64) {
		w := device.Work{FLOPs: 2 * m * n * k, Bytes: 4 * (m*n + n*k + m*k)}
		return w, 2e-6 + w.FLOPs/1e11 + w.Bytes/1e10
	}
	o := &OpTimes{Op: "matmul", Form: "f32 #x#x# nt", Ranks: 1}
	for _, m := range []float64{64, 256, 1024} {
		for _, n := range []float64{64, 256, 1024} {
			for _, k := range []float64{64, 256, 1024} {
				w, s := took(m, n, k)
				o.Times = append(o.Times, []float64{m, n, k, w.FLOPs, w.Bytes, s})
			}
		}
	}
	o.rates()
	for _, size := range [][3]float64{{64, 64, 64}, {1024, 256, 64}, {128, 512, 384}, {192, 192, 192}, {900, 80, 700}, {2048, 1024, 1024}} {
		w, want := took(size[0], size[1], size[2])
		if got := o.seconds(size[:], w, -1); math.Abs(got/want-1) > 0.1 {
			t.Errorf("%v: %g s, made with %g", size, got, want)
		}
	}
	w, want := took(256, 64, 1024)
	if got := o.seconds([]float64{256, 64, 1024}, w, -1); math.Abs(got/want-1) > 1e-6 {
		t.Errorf("a measured shape: %g s, it took %g", got, want)
	}
}

// Claim: groups of ranks that share threads: one rank has them all; as many ranks as threads
// take what was timed with a rank a thread; more take their share of the threads, at the time
// measured in turn; waiting for each other counts where nobody else computes, and work of collectives
// where somebody does.
func TestCrowd(t *testing.T) {
	l := load{alone: 1, one: 1.8, many: 2, wait: 0.2, carry: 0.3}
	for _, c := range []struct {
		crowd
		want float64
	}{
		{crowd{2, 1, 1}, 1 + 0.2}, {crowd{2, 1, 2}, 1.8 + 0.2}, {crowd{2, 1, 4}, 4 + 0.2}, {crowd{2, 2, 1}, 2.1}, {crowd{2, 2, 2}, 4.6}, {crowd{2, 4, 1}, 4.6},
		{crowd{4, 1, 2}, math.Sqrt(1.8) + 0.2}, {crowd{1, 1, 1}, 2}, {crowd{1, 1, 2}, 4.2},
	} {
		if got := c.seconds(l); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: %g, want %g", c.crowd, got, c.want)
		}
	}
	if got := (crowd{2, 1, 1}).seconds(load{}); got != 0 {
		t.Errorf("nothing takes %g", got)
	}
}

// sharedMachine has two threads: a product runs at 1e11 a second with both and at 6e10 with
// one, all else at 1e10 bytes and 7e9.
func sharedMachine(t *testing.T) *Machine {
	var b strings.Builder
	b.WriteString(strings.Replace(tinyMachine, "devices_per_node: 2", "devices_per_node: 64", 1) + "threads: 2\nops:\n")
	for ranks, rates := range [][2]float64{{1e11, 1e10}, {6e10, 7e9}} {
		for _, dtype := range []string{"f32", "bf16"} {
			for _, way := range []string{"nt", "nn", "tn +="} {
				fmt.Fprintf(&b, "  - {op: matmul, form: \"%s #x#x# %s\", ranks: %d, times: [[64, 64, 64, 1e6, 0, %g], [512, 512, 512, 1e9, 0, %g]]}\n", dtype, way, ranks+1, 1e6/rates[0], 1e9/rates[0])
			}
		}
		for _, op := range []string{"adamw", "norm_forward", "copy"} {
			fmt.Fprintf(&b, "  - {op: %s, form: \"f32[#]\", ranks: %d, times: [[100, 0, 1e4, %g], [1e6, 0, 1e8, %g]]}\n", op, ranks+1, 1e4/rates[1], 1e8/rates[1])
		}
	}
	b.WriteString("collectives:\n")
	for _, op := range []string{"all_reduce", "all_gather", "reduce_scatter", "broadcast", "exchange"} {
		fmt.Fprintf(&b, "  - {op: %s, dtype: f32, ranks: 2, groups: 1, times: [[256, 1e-5], [1e6, 1e-3]]}\n  - {op: %s, dtype: f32, ranks: 2, groups: 2, times: [[256, 1e-5], [1e6, 1e-3]]}\n", op, op)
	}
	m, err := ParseMachine([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Claim: on a machine whose ranks share two threads, the work decides: two ranks of data
// parallelism take one rank's step at what a thread does, four no less than two, stages of a
// pipeline about what the one rank takes, and recomputation a third more products.
func TestSharedSteps(t *testing.T) {
	m := sharedMachine(t)
	step := func(flags string) float64 {
		k, err := NewClock(parsed(t, small+"--hidden-size 256 --seq-length 128 --global-batch-size 16 --micro-batch-size 2 "+flags), m)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.Run(nominal)
		if err != nil || !(s.Low <= s.Step && s.Step <= s.High) || s.MFU <= 0 {
			t.Fatalf("%s: %+v, %v", flags, s, err)
		}
		return s.Step
	}
	one := step("--world-size 1")
	for _, c := range []struct {
		flags     string
		low, high float64 // of one
	}{
		{"--world-size 2", 0.75, 1.02}, {"--world-size 4", 0.8, 1.1}, {"--world-size 2 --pipeline-model-parallel-size 2", 0.8, 1.15}, {"--world-size 2 --tensor-model-parallel-size 2", 0.7, 1.2},
		{"--world-size 1 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", 1.15, 1.5},
	} {
		if got := step(c.flags) / one; got < c.low || got > c.high {
			t.Errorf("%s: %.3f of one rank's step; it must be from %g to %g", c.flags, got, c.low, c.high)
		}
	}
}
