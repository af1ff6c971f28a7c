//go:build cgo

package cuda_test

import (
	"os"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// Claim: every kernel agrees with the plain Go oracle; on a GPU, or emulated.
func TestValues(t *testing.T) { devicetest.Values(t, open(t)) }

// Claim: the same of shapes and options that nobody chose; SEED draws others, DRAWN so many rounds.
func TestDrawn(t *testing.T) { devicetest.DrawnValues(t, open(t)) }

// Claim: every op has a kernel that starts and computes; what scripts/gpu.sh asks first.
func TestSmallest(t *testing.T) { devicetest.Smallest(t, open(t)) }

// Claim (op_experts.go): a row of a grouped product does not depend on the others.
func TestRowsAlone(t *testing.T) { devicetest.RowsAlone(t, open(t)) }

// Claim: what a device does not know, it refuses.
func TestRefusals(t *testing.T) { devicetest.Refusals(t, open(t)) }

func BenchmarkOps(b *testing.B) { devicetest.Bench(b, open(b)) }

// open makes the device that MONOTRON_CUDA_LIBRARY names.
func open(t testing.TB) *device.Device {
	t.Helper()
	if os.Getenv(cuda.LibraryVariable) == "" {
		t.Skipf("%s names no library; make test-emu and make test-gpu set it", cuda.LibraryVariable)
	}
	dev, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}
