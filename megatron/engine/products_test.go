//go:build cgo && linux

package engine

import (
	"bytes"
	"strings"
	"testing"

	"monotron/csrc/cuda/fake"
	"monotron/megatron/config"
)

// Claim: where a library of products chooses by the alignment of its operands, a run with
// graphs, a plain one, and one that has taken other memory before all have the same bits.
func TestProductsChosenAlike(t *testing.T) {
	if !fake.Emulated() {
		t.Skip("MONOTRON_CUDA_LIBRARY does not name the emulated library; make test-emu sets it")
	}
	t.Setenv("MONOTRON_CUBLASLT", fake.CuBLASLt(t, "130000", "0", true))
	c := tinyConfig()
	c.Precision = config.BF16
	plain := traced(t, c, false)
	if got := plain.engine.device.Describe(); !strings.Contains(got, "cuBLASLt 13.0.0") {
		t.Fatal(got)
	}
	displaced = 100
	defer func() { displaced = 0 }()
	for name, other := range map[string]trace{"with graphs": traced(t, c, true), "behind other memory": traced(t, c, false)} {
		for i := range plain.reported {
			if plain.reported[i] != other.reported[i] {
				t.Errorf("step %d: %s %s, %s plain", i+1, other.reported[i], name, plain.reported[i])
			}
		}
		for tensor, raw := range plain.tensors {
			if !bytes.Equal(raw, other.tensors[tensor]) {
				t.Errorf("%s differs %s", tensor, name)
			}
		}
	}
}
