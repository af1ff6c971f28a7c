package modelcase

import (
	"path/filepath"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/internal/golden"
)

// Claim: multi-token prediction agrees with Megatron-LM d98e8a64 in float64: losses and logits of
// each depth, every gradient, the norm of detached heads, experts, and the curve, on one rank and
// in every layout of golden/model, on both devices.
func TestGoldenMultiTokenPrediction(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(goldenCases(t), "*mtp-*"))
	if want := map[bool]int{true: 22, false: 11}[golden.Complete()]; err != nil || len(folders) != want {
		t.Fatalf("%d cases, want %d, %v", len(folders), want, err)
	}
	kinds := map[string]func() (*device.Device, error){"ref": openRef}
	if d, err := cpu.Open(); err == nil { // not without cgo
		d.Close()
		kinds["cpu"] = cpu.Open
	}
	for _, f := range some(t, folders) {
		for kind, open := range kinds {
			t.Run(filepath.Base(f)+"/"+kind, func(t *testing.T) { checkOn(t, f, open, 82) })
		}
	}
}
