package ref_test

import (
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
	"monotron/csrc/ref"
)

// Claim: the table's cases are sound: they repeat, inputs stay, gaps stay.
func TestValues(t *testing.T) { devicetest.Values(t, ref.Open()) }

// Claim (op_experts.go): a row of a grouped product does not depend on the others.
func TestRowsAlone(t *testing.T) { devicetest.RowsAlone(t, ref.Open()) }

// Claim: what a device does not know, it refuses.
func TestRefusals(t *testing.T) { devicetest.Refusals(t, ref.Open()) }

// Claim (doc.go of device): results do not depend on the number of threads.
func TestSameBits(t *testing.T) {
	devicetest.SameBits(t, func(pool *device.Pool) *device.Device { return ref.OpenOn(pool) })
}

// Claim: backward ops are the derivatives of forward ops.
func TestGradients(t *testing.T) { devicetest.Gradients(t) }

func BenchmarkOps(b *testing.B) { devicetest.Bench(b, ref.Open()) }
