package training

import (
	"errors"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/engine"
)

// TestExhausted: the error says what was asked, what holds most, and the flags
// that save most with their bytes, by the shares that sharding and halving leave.
func TestExhausted(t *testing.T) {
	const mib = 1 << 20
	c := Config{MicroBatchSize: 4, Config: engine.Config{SeqLength: 1024, Precision: engine.BF16, Layout: engine.Layout{WorldSize: 4, TP: 1, PP: 1, CP: 1, DP: 4}}}
	c.Model.NumLayers, c.Model.HiddenSize, c.Model.NumAttentionHeads, c.Model.FFNHiddenSize = 8, 512, 8, 2048
	e := &device.OutOfMemory{Purpose: device.Activations, Bytes: 100 * mib, For: device.View(nil, device.BF16, 4, 1024, 512), Cause: errors.New("no more"),
		Largest: []device.Holder{{Purpose: device.Optimizer, Of: device.View(nil, device.F32, 2048, 512), Blocks: 16, Bytes: 64 * mib}}}
	e.Held[device.Activations], e.Held[device.Optimizer], e.Held[device.MainGradients], e.Held[device.Parameters] = 300*mib, 400*mib, 100*mib, 50*mib
	err := c.Exhausted(e)
	if fault.CodeOf(err) != fault.Internal || !errors.Is(err, e.Cause) {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"100.0 MiB for activations (bf16 4x1024x512) on top of 850.0 MiB held: no more",
		"the largest: 64.0 MiB optimizer: 16 of f32 2048x512",
		"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 saves 368.0 MiB", // 400 less 8 layers' inputs of 4 MiB
		"--use-distributed-optimizer saves 300.0 MiB",                                                      // three quarters of 400
		"--tensor-model-parallel-size 2 on twice the ranks saves 275.0 MiB",                                // half of 550
		"--micro-batch-size 2 saves 200.0 MiB",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	for _, flag := range []string{"--cuda-graph-impl", "--attention-backend"} {
		if strings.Contains(err.Error(), flag) {
			t.Errorf("%s is named, which is not in use: %v", flag, err)
		}
	}
	e.Graphs, e.Fused, e.Held[device.Workspace] = 290*mib, 500*mib, 500*mib
	err = c.Exhausted(e)
	for _, want := range []string{"--attention-backend flash saves 500.0 MiB; ", "--cuda-graph-impl none saves 290.0 MiB"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "--sequence-parallel") || strings.Contains(err.Error(), "--bf16") {
		t.Errorf("flags that do not help are named: %v", err)
	}
}
