//go:build cgo && linux

package engine

import (
	"testing"

	"monotron/csrc/cuda/fake"
	"monotron/csrc/device"
	"monotron/megatron/config"
)

// Claim: where memory runs out with graphs and cuDNN's attention, the error knows how much each
// of them allocates: the purposes table without them is less by as much.
func TestExhaustedWithGraphsAndFusedAttention(t *testing.T) {
	fake.Use(t)
	t.Setenv("MONOTRON_EMU_MEMORY", "1000000000")
	used := func(graphs bool, backend string) (*device.OutOfMemory, device.Usage, int64) {
		c := tinyConfig()
		c.Precision, c.AttentionBackend = config.BF16, backend
		e := newTestEngineOn(t, gpu(t), c)
		if err := e.ChooseAttention(MicroShapes{Batches: []int64{2}}, func(string, ...any) {}); err != nil {
			t.Fatal(err)
		}
		if graphs {
			if why := e.Capture(); why != "" {
				t.Fatal(why)
			}
		}
		for range 2 {
			if _, err := e.Step(testBatch(4, 2, 8)); err != nil {
				t.Fatal(err)
			}
		}
		usage, err := e.device.Arena.Usage(), error(nil)
		func() {
			defer device.CatchOutOfMemory(&err)
			e.device.Arena.Alloc(device.Activations, device.F32, 1<<30)
		}()
		lack, ok := err.(*device.OutOfMemory)
		if !ok {
			t.Fatalf("an allocation past the end of memory: %v", err)
		}
		return lack, usage, e.device.FusedWorkspace()
	}
	plain, base, _ := used(false, "flash")
	if plain.Graphs != 0 || plain.Fused != 0 {
		t.Errorf("without graphs and cuDNN they hold %d and %d bytes", plain.Graphs, plain.Fused)
	}
	fused, usage, workspace := used(false, "fused")
	if more := usage.Now[device.Workspace] - base.Now[device.Workspace]; fused.Fused != workspace || more < workspace || more > workspace+64 {
		t.Errorf("cuDNN's workspace is %d bytes, the error says %d, the table has %d more", workspace, fused.Fused, more)
	}
	graphs, usage, _ := used(true, "flash")
	if more := usage.Now[device.Activations] - base.Now[device.Activations]; graphs.Graphs == 0 || graphs.Graphs > more || more-graphs.Graphs > 1<<20 {
		t.Errorf("the error says that graphs keep %d bytes, the table has %d more", graphs.Graphs, more)
	}
}
