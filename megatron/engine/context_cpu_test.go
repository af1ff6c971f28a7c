//go:build cgo

package engine

import (
	"fmt"
	"testing"

	"monotron/csrc/cpu"
	"monotron/megatron/config"
)

// Claim (docs/context-parallel.md): on the cpu device too the forward pass of all_gather and
// a2a has the bits of one rank, where stretches are complete blocks of its kernel (64 positions).
func TestContextParallelForwardBitsOnCPU(t *testing.T) {
	const s = 256
	for name, change := range contextModels {
		for _, precision := range []string{config.F32, config.BF16} {
			step := func(l config.Layout) config.Step {
				c := contextConfig(l, change)
				c.SeqLength, c.Model.MaxPositions, c.Precision = s, s, precision
				return c
			}
			batch := unevenBatch(4, s)
			want := runShared(t, step(config.Layout{}), cpu.Open, batch, 0)
			for _, l := range []config.Layout{{CP: 2, CPCommType: []string{"all_gather"}}, {CP: 2, CPCommType: []string{"a2a"}}} {
				sameStream(t, fmt.Sprintf("%s %s %v", name, precision, l.CPCommType), runShared(t, step(l), cpu.Open, batch, 0), want)
			}
		}
	}
}
