//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/device"
)

// Claim: what an op works in is known by shapes alone: a plan asks for it where the tables
// that a call reads do not exist.
func TestWorkspaceByShapesAlone(t *testing.T) {
	second, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	d := device.Counting("cpu", second, device.Watching{})
	x, table := d.Arena.Alloc(device.MainGradients, device.F32, 1<<20), d.Arena.Alloc(device.Optimizer, device.I64, 7, 2)
	d.GradStats(d.Arena.Alloc(device.Optimizer, device.F64, device.Stats), x, table)
	hyper, mults := d.Arena.Alloc(device.Optimizer, device.F32, device.Hypers), d.Arena.Alloc(device.Optimizer, device.F32, 7, 2)
	d.AdamW(device.AdamWArgs{Param: x, Grad: x, M: x, V: x, Hyper: hyper, Segments: table, Mults: mults})
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}
