package mpu_test

import (
	"fmt"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Claim (docs/finetuning.md, Adapters): what an adapter keeps of its forward pass, Scale·x·Aᵀ, is as large as that, and
// backward from it gives what it gives from x; with rows cut over ranks too.
func TestKeptOfAdapter(t *testing.T) {
	const tokens, in, out, low = 16, 8, 20, 4
	for _, sequence := range []bool{false, true} {
		onRanks(t, 2, sequence, func(r rank) error {
			l := mpu.NewColumnParallelLinear(r.Region, mpu.LinearConfig{Name: "l", Out: out, In: in})
			l.Adapt([]mpu.Branch{{Name: "m", Out: out, In: in, Rank: low, Scale: 0.75, Rows: [][3]int64{{0, 0, out}}}})
			mpu.Allocate(r.d, l.Params(), device.F64, true)
			for i, p := range l.Params() {
				device.WriteSlice(r.d, p.Value, noise(uint64(i+1), p.Value.Len()))
			}
			here := r.Rows(tokens)
			x, dy := r.with(noise(8, here*in), here, in), r.with(noise(9, tokens*out/2), tokens, out/2)
			var results [2][]float64
			for i := range results {
				s := r.d.Arena.Scope(device.Activations)
				before := r.d.Arena.Usage().Now[device.Activations]
				h := &mpu.Hooks{}
				if i == 1 {
					h.Kept = mpu.Keep(s)
				}
				y, dx := r.alloc(tokens, out/2), r.alloc(here, in)
				if err := l.Forward(r.d, h, y, x, device.NoEpilogue, device.Tensor{}); err != nil {
					return err
				}
				if got, want := r.d.Arena.Usage().Now[device.Activations]-before, int64(i*tokens*low*8); got != want {
					return fmt.Errorf("%d bytes are kept, want %d", got, want)
				}
				if err := l.Backward(r.d, h, dx, dy, x); err != nil {
					return err
				}
				results[i] = device.ReadSlice[float64](r.d, dx)
				for _, p := range l.Params() {
					results[i] = append(results[i], device.ReadSlice[float64](r.d, p.Grad)...)
					r.d.Fill(p.Grad, 0)
				}
				s.Release()
			}
			for i, v := range results[0] {
				if d := v - results[1][i]; d > 1e-12 || d < -1e-12 {
					return fmt.Errorf("element %d: %g from what was kept, %g from x", i, results[1][i], v)
				}
			}
			if !slices.ContainsFunc(results[0], func(v float64) bool { return v != 0 }) {
				return fmt.Errorf("all gradients are 0")
			}
			return nil
		})
	}
}
