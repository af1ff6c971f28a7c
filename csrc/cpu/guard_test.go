//go:build cgo

package cpu_test

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
)

// guarded makes tensors that end where a page begins that nobody may touch.
type guarded struct {
	t *testing.T
	d *device.Device
}

func (g guarded) make(dtype device.DType, shape ...int64) device.Tensor {
	t := device.View(nil, dtype, shape...)
	page := int64(unix.Getpagesize())
	size := (t.Bytes() + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, int(size+page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = unix.Munmap(m) })
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		g.t.Fatal(err)
	}
	t.Data = unsafe.Pointer(&m[size-t.Bytes()])
	return t
}

// Claim: no kernel reads or writes behind the last element of a tensor, for any
// length of a row's rest. A breach kills the test binary.
func TestNothingBehindTheEnd(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	best := bestISA(t)
	for level := range best + 1 {
		limitISA(level)
		for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
			for h := int64(1); h <= 35; h++ {
				t.Run(fmt.Sprintf("%s/%s/%d", instructionSets[level], dtype, h), func(t *testing.T) { guarded{t, d}.every(dtype, h) })
			}
		}
	}
}

// every calls each op on three rows of h.
func (g guarded) every(dtype device.DType, h int64) {
	d := g.d
	value := func() device.Tensor { return g.make(dtype, 3, h) }
	stat := func() device.Tensor { return g.make(device.F32, 3) }
	weight, sum := g.make(dtype, h), g.make(device.F32, h)
	ids, one := g.make(device.I32, 3), g.make(device.I64, 1)
	drop := device.Dropout{Step: one, Samples: ids, Rate: 0.5, Channel: 3}

	d.NormForward(device.NormForwardArgs{Y: value(), X: value(), Gamma: weight, Beta: weight, Mean: stat(), Rstd: stat()})
	d.NormBackward(device.NormBackwardArgs{DX: value(), DGamma: sum, DBeta: sum, DY: value(), X: value(), Gamma: weight, Mean: stat(), Rstd: stat(), Residual: value()})
	for kind := range activations.Activations {
		x := value()
		if kind.Gated() {
			x = g.make(dtype, 3, 2*h)
		}
		d.ActivationForward(device.ActivationForwardArgs{Y: value(), X: x, Kind: kind})
		d.ActivationBackward(device.ActivationBackwardArgs{DX: x, DY: value(), X: x, Kind: kind})
	}
	angles := g.make(device.F32, 1, h)
	for interleaved := range int32(2) {
		d.Rope(device.RopeArgs{X: g.make(dtype, 3, 1, 1, 2*h), Cos: angles, Sin: angles, Positions: ids, RotDims: int32(2 * h), Interleaved: interleaved})
	}
	d.EmbeddingForward(device.EmbeddingForwardArgs{Out: value(), Table: value(), IDs: ids, Accumulate: 1})
	d.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: g.make(device.F32, 3, h), DOut: value(), IDs: ids})
	logits := g.make(device.F32, 3, h)
	d.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: logits, Labels: ids, Max: stat(), Sum: stat(), Target: stat(), Columns: h})
	d.CrossEntropyGrad(device.CrossEntropyGradArgs{D: value(), Logits: logits, Labels: ids, Max: stat(), Sum: stat(), Weight: stat(), Columns: h})
	d.DropoutAdd(device.DropoutAddArgs{Out: value(), X: value(), Bias: weight, Residual: value(), Drop: drop})
	d.DropoutBackward(device.DropoutBackwardArgs{DX: value(), DY: value(), Drop: drop})
	d.ColumnSum(device.ColumnSumArgs{Out: sum, X: value()})
	d.Add(value(), value(), value())
	d.Copy(logits, value())
	d.Copy(value(), logits)
	d.Fill(value(), 1)
	d.Uniform(device.UniformArgs{Out: g.make(device.F32, h), Step: one})
	d.GradStats(g.make(device.F64, device.Stats), value(), device.Tensor{})
	d.WeightedSum(device.WeightedSumArgs{Out: g.make(device.F64, 2), X: logits, W: logits})
	g.experts(dtype, h)
	hyper, mults, f32 := g.make(device.F32, device.Hypers), g.make(device.F32, 1, 2), func() device.Tensor { return g.make(device.F32, 3, h) }
	d.AdamW(device.AdamWArgs{Param: f32(), Grad: f32(), M: f32(), V: f32(), Model: value(), Hyper: hyper, Mults: mults})
	d.SGD(device.SGDArgs{Param: f32(), Grad: f32(), Momentum: f32(), Model: value(), Hyper: hyper, Mults: mults})
	if err := d.Sync(); err != nil {
		g.t.Error(err)
	}
}

// experts calls the ops of a mixture with three tokens, h experts and rows of h.
func (g guarded) experts(dtype device.DType, h int64) {
	d, rows := g.d, g.make(device.I32, 3)
	value := func() device.Tensor { return g.make(dtype, 3, h) }
	chosen := func(t device.DType) device.Tensor { return g.make(t, 3, 1) }
	logits, dlogits, one := value(), g.make(device.F32, 3, h), g.make(device.F32, 1)
	rule := device.RouterRule{Scaling: 1}
	d.RouterForward(device.RouterForwardArgs{Weights: chosen(device.F32), Experts: chosen(device.I32), Logits: logits, Bias: g.make(device.F32, h), Keys: g.make(device.F32, 3, h), Rule: rule})
	d.RouterBackward(device.RouterBackwardArgs{DLogits: dlogits, DWeights: chosen(device.F32), Experts: chosen(device.I32), Logits: logits, Rule: rule})
	counts := g.make(device.F32, 1, h)
	d.RouterBalance(device.RouterBalanceArgs{Probs: g.make(device.F32, 1, h), Counts: counts, Logits: logits, Samples: 1, K: 1})
	d.RouterBalance(device.RouterBalanceArgs{DLogits: dlogits, Scale: one, Counts: counts, Logits: logits, Samples: 1, K: 1})
	d.RouterZ(device.RouterZArgs{Squares: g.make(device.F32, 3), Logits: logits})
	d.RouterZ(device.RouterZArgs{DLogits: dlogits, Scale: one, Logits: logits})
	d.RouterDrop(device.RouterDropArgs{Kept: chosen(device.I32), Experts: chosen(device.I32), Weights: chosen(device.F32), NumExperts: h, Capacity: 1})
	d.RouterSinkhorn(g.make(device.F32, 3, h), logits)
	slots, offsets := chosen(device.I32), g.make(device.I32, h+1)
	d.ExpertOrder(device.ExpertOrderArgs{Rows: rows, Slots: slots, Offsets: offsets, Experts: chosen(device.I32), Width: 1})
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: g.make(device.F32, 3), Chosen: chosen(device.F32), Slots: slots})
	d.GatherRows(value(), value(), rows)
	d.CombineRows(value(), value(), slots)
	d.ScaleRows(value(), value(), g.make(device.F32, 3))
	d.RowDots(g.make(device.F32, 3), value(), value())
	d.GroupedSum(device.GroupedSumArgs{Out: g.make(device.F32, h, h), X: value(), Offsets: offsets})
	matrices := g.make(dtype, h, h, h)
	d.GroupedMatmul(device.GroupedMatmulArgs{C: value(), A: value(), B: matrices, Bias: g.make(dtype, h, h), Offsets: offsets, TransB: 1})
	d.GroupedMatmul(device.GroupedMatmulArgs{C: value(), A: value(), B: matrices, Offsets: offsets})
	d.GroupedMatmul(device.GroupedMatmulArgs{C: g.make(device.F32, h, h, h), A: value(), B: value(), Offsets: offsets, TransA: 1})
}

// Claim: a grouped product whose offsets reach behind its rows, or go back, is an error that
// names the group, and no memory is touched: ranks that disagree about the tokens of an
// expert end with a word, not with a breach.
func TestOffsetsBehindTheRows(t *testing.T) {
	for _, offsets := range [][]int32{{0, 2, 4}, {0, 4, 3}, {0, -1, 3}, {-2, 1, 3}} {
		d, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		g := guarded{t, d}
		at := g.make(device.I32, 3)
		device.WriteSlice(d, at, offsets)
		d.GroupedMatmul(device.GroupedMatmulArgs{C: g.make(device.F32, 3, 8), A: g.make(device.F32, 3, 8), B: g.make(device.F32, 2, 8, 8), Offsets: at})
		if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "the 3 rows of the tensor") {
			t.Errorf("offsets %v of 3 rows: %v", offsets, err)
		}
		d.Close()
	}
}
