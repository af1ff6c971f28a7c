//go:build cgo && linux

package model_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/cuda/fake"
	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/spec"
)

// Claim: cuDNN's attention is taken when a trial agrees with our kernels and repeats, and
// not when its numbers are wrong, when they drift, when it fails, when its workspace is too large, or when
// the model needs what it has not. Emulated, with a stand-in for cuDNN.
func TestFuseAttention(t *testing.T) {
	fake.Use(t)
	grouped := spec.Model{HiddenSize: 64, NumAttentionHeads: 4, NumQueryGroups: 2, KVChannels: 16, WindowLeft: -1}
	normed, window, drop := grouped, grouped, grouped
	normed.QKNorm, window.WindowLeft, drop.AttentionDropout = true, 5, 0.1
	run := model.AttentionRun{DType: device.BF16, Batch: 2, Seq: 24, Workspace: math.MaxInt64}
	wide, small, documents := run, run, run
	wide.DType, small.Workspace, documents.Documents = device.F32, 100, true
	for _, c := range []struct {
		name, fault string
		m           spec.Model
		run         model.AttentionRun
		refusal     string // "": taken
	}{
		{"grouped queries", "", grouped, run, ""},
		{"normed queries and keys", "", normed, run, ""},
		{"wrong numbers", "wrong", grouped, run, "in a trial, the output of cuDNN's attention differed by 5.0% from the result of monotron's kernels"},
		{"other numbers each time", "drift", grouped, run, "in a trial, two runs of cuDNN's attention gave different bits"},
		{"it fails", "refused", grouped, run, "cuDNN's attention: "},
		{"window", "", window, run, "a sliding window"},
		{"dropout", "", drop, run, "attention dropout"},
		{"f32", "", grouped, wide, "f32"},
		{"workspace", "", grouped, small, "more than the limit of 100 bytes"},
		{"documents", "", grouped, documents, "documents"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("STANDIN_FAULT", c.fault)
			if c.fault == "" {
				os.Unsetenv("STANDIN_FAULT")
			}
			d, err := cuda.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			before := d.Arena.Usage().Allocated
			off, err := model.FuseAttention(d, &c.m, model.Alone(d), c.run)
			if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("off by %g, %v; want %q", off, err, c.refusal)
			}
			if kept := d.Arena.Usage().Allocated - before; kept > d.FusedWorkspace()+512 {
				t.Errorf("the trial keeps %d bytes besides the workspace", kept-d.FusedWorkspace())
			}
			if err := d.Sync(); err != nil {
				t.Errorf("after the trial: %v", err)
			}
		})
	}
}
