//go:build cgo

package layouts

import (
	"os"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/internal/drawn"
)

// Claim (docs/invariance.md): with --layout-invariant no layout and no size of micro-batches changes a bit
// on CUDA, on a GPU or emulated, in f32 and bf16. A draw of models and layouts; SHARE=1: all of the list.
func TestLayoutsGiveTheSameBitsOnCUDA(t *testing.T) {
	if os.Getenv(cuda.LibraryVariable) == "" {
		t.Skipf("%s names no library; make test-emu sets it", cuda.LibraryVariable)
	}
	// Layouts by name; micro-batches have 1 or 2 samples, on one rank 1.
	dense := []string{"tp2 sp", "tp4", "pp2", "dp2 optim", "dp4 optim_grads_params", "cp2 a2a optim_grads", "tp2 sp dp2 recompute-full-block", "tp2 sp pp2", "tp2 dp2 optim overlap"}
	mixed := []string{"dp2 ep2 allgather", "dp2 ep2 alltoall optim", "tp2 sp alltoall", "tp2 sp ep2 etp1 alltoall", "dp4 ep4 allgather optim_grads_params overlap", "cp2 a2a ep2 allgather optim_grads",
		"tp2 sp dp2 ep2 alltoall"}
	shared := []string{"dp2 ep2 alltoall beside-shared optim", "tp2 sp alltoall beside-shared", "tp2 sp tp-overlap ep2 etp1 alltoall", "dp4 ep4 alltoall optim_grads_params"}
	one := []string{"tp2 sp dp2 recompute-full-block"}
	const short = "--num-layers 2 --global-batch-size 4 --reduction-leaves 4 "
	steps := 2
	if drawn.Share() > 1 {
		steps = 1
	}
	for _, c := range drawn.Part(t, []struct {
		shape, flags string
		layouts      []string
	}{
		{"gpt2", short, dense},
		{"llama", short + "--bf16 --qk-layernorm --softmax-type learnable", dense},
		{"mixtral", short + "--moe-z-loss-coeff 0.001", mixed},
		{"deepseek-moe", short + "--bf16 --moe-layer-freq ([0]*1+[1]*1) --moe-shared-expert-gate", shared},
		{"mla", short + "--bf16", one},
		{"mtp", short, one},
		{"delta", short + "--linear-attention-freq 2", one},
		{"mamba", short + "--mamba-layer-freq ([1]*1+[0]*1)", one},
		{"llama", short + "--optimizer muon", one},
	}, 1) {
		m, err := Builtin(c.shape, strings.Fields("--layout-invariant "+c.flags)...)
		if err != nil {
			t.Fatal(err)
		}
		names := drawn.Part(t, c.layouts, 1)
		r, err := Prove([]Model{m}, Options{World: 4, Steps: steps, Keep: func(v Variant) bool { return slices.Contains(names, v.String()) }, Bits: true,
			Open: func() (*device.Device, error) { return cuda.Open(0) }, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", c.shape, r.said())
		if len(r.Rows) != len(names) {
			t.Errorf("%s: %d layouts of %q", c.shape, len(r.Rows), names)
		}
		for _, row := range r.Rows {
			if !row.OK {
				t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
			}
		}
	}
}
