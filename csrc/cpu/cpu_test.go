//go:build cgo

package cpu_test

import (
	"runtime"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
)

// Claim: every op agrees with the plain Go oracle.
func TestValues(t *testing.T) { devicetest.Values(t, open(t)) }

// Claim: the same of shapes and options that nobody chose; SEED draws others, DRAWN so many rounds.
func TestDrawn(t *testing.T) { devicetest.DrawnValues(t, open(t)) }

// Claim (op_experts.go): a row of a grouped product does not depend on the others.
func TestRowsAlone(t *testing.T) { devicetest.RowsAlone(t, open(t)) }

// Claim: what a device does not know, it refuses.
func TestRefusals(t *testing.T) { devicetest.Refusals(t, open(t)) }

// Claim (doc.go of device): bits do not depend on the number of threads.
func TestSameBits(t *testing.T) {
	t.Cleanup(func() { device.SetThreads(runtime.GOMAXPROCS(0)) })
	devicetest.SameBits(t, func(pool *device.Pool) *device.Device {
		device.SetThreads(pool.Threads()) // Open takes the shared pool: one of the same size
		return open(t)
	})
}

func open(t testing.TB) *device.Device {
	t.Helper()
	dev, err := cpu.Open()
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func BenchmarkOps(b *testing.B) { devicetest.Bench(b, open(b)) }
