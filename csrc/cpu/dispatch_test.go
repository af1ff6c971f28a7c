//go:build cgo

package cpu_test

import (
	"testing"

	"monotron/csrc/device"
)

// BenchmarkDispatch measures an op's overhead, from the call until it is done: its arguments, the way into C
// and back, and of a product the choice of its kernel.
func BenchmarkDispatch(b *testing.B) {
	d := open(b)
	x, y := d.Arena.Alloc(device.Activations, device.F32, 8, 8), d.Arena.Alloc(device.Activations, device.F32, 8, 8)
	for name, op := range map[string]func(){
		"add":    func() { d.Add(y, x, x) },
		"matmul": func() { d.Matmul(device.MatmulArgs{C: y, A: x, B: x}) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				op()
			}
		})
	}
}
