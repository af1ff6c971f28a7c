package mpu_test

import (
	"encoding/binary"
	"math"
	"os"
	"testing"
	"unsafe"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// fp8File is a file of golden/fp8.
func fp8File(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(golden.Dir(t, "fp8", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func fp8Floats(t *testing.T, name string) []float32 {
	t.Helper()
	raw := fp8File(t, name)
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// onDevices runs work on the oracle and on the CPU; a build without cgo skips the latter.
func onDevices(t *testing.T, work func(t *testing.T, d *device.Device)) {
	t.Run("ref", func(t *testing.T) {
		d := ref.Open()
		defer d.Close()
		work(t, d)
	})
	t.Run("cpu", func(t *testing.T) {
		d, err := cpu.Open()
		if err != nil {
			t.Skip(err)
		}
		defer d.Close()
		work(t, d)
	})
}

// Claim: every number of 16 bits, bf16 or f16, that a format reaches is rounded as torch casts it to float8_e4m3fn and float8_e5m2.
func TestFP8RoundsAsTorch(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for format, f := range []struct {
			name string
			most float32
		}{device.E4M3: {"e4m3", 448}, device.E5M2: {"e5m2", 57344}} {
			values := fp8Floats(t, "values."+f.name)
			for source, kind := range map[string]device.DType{"bf16": device.BF16, "f16": device.F16} {
				var x, want []float32 // blocks of 128, whose first number makes the scale 1
				for bits, code := range fp8File(t, "cast."+source+"."+f.name) {
					v := make([]float64, 1)
					raw := uint16(bits)
					device.LoadFloat64(v, kind, unsafe.Pointer(&raw))
					if !(math.Abs(v[0]) <= float64(f.most)) {
						continue
					}
					if len(x)%128 == 0 {
						x, want = append(x, f.most), append(want, f.most)
					}
					x, want = append(x, float32(v[0])), append(want, values[code])
				}
				for len(x)%128 != 0 {
					x, want = append(x, 0), append(want, 0)
				}
				rows := int64(len(x) / 128)
				in, out := d.Arena.Alloc(device.Workspace, device.F32, rows, 128), d.Arena.Alloc(device.Workspace, device.F32, rows, 128)
				device.WriteSlice(d, in, x)
				d.RoundFP8(device.RoundFP8Args{Out: out, X: in, Rows: 1, Columns: 128, Format: int32(format)})
				wrong := 0
				for i, got := range device.ReadSlice[float32](d, out) {
					if got != want[i] {
						if wrong++; wrong < 4 {
							t.Errorf("%s of %s %g: %g, torch has %g", f.name, source, x[i], got, want[i])
						}
					}
				}
				if t.Logf("%d numbers of %s as %s, %d wrong", len(x), source, f.name, wrong); len(x) < 30000 {
					t.Errorf("%d numbers of %s", len(x), source)
				}
			}
		}
	})
}

// Claim: a linear layer with blockwise scales gives the output, the input's gradient and the weight's of torch's casts with products in float64, with
// gradients in either format; the same whichever way it would be cut.
func TestFP8Layer(t *testing.T) {
	const tokens, in, out = 130, 132, 136
	onDevices(t, func(t *testing.T, d *device.Device) {
		for name, f := range map[string]*mpu.FP8{"e4m3": {Gradients: device.E4M3}, "hybrid": {Gradients: device.E5M2}} {
			alone := mpu.Region{Group: comm.Solo("tp", 0, d)}
			c := mpu.LinearConfig{Name: "layer", Out: out, In: in, FP8: f}
			column, row := mpu.NewColumnParallelLinear(alone, c), mpu.NewRowParallelLinear(alone, c)
			for kind, l := range map[string]struct {
				weight   *mpu.Param
				forward  func(y, x device.Tensor) error
				backward func(dx, dy, x device.Tensor) error
			}{
				"column": {column.Weight, func(y, x device.Tensor) error {
					return column.Forward(d, &mpu.Hooks{}, y, x, device.NoEpilogue, device.Tensor{})
				},
					func(dx, dy, x device.Tensor) error { return column.Backward(d, &mpu.Hooks{}, dx, dy, x) }},
				"row": {row.Weight, func(y, x device.Tensor) error { return row.Forward(d, &mpu.Hooks{}, y, x) },
					func(dx, dy, x device.Tensor) error { return row.Backward(d, &mpu.Hooks{}, dx, dy, x) }},
			} {
				mpu.Allocate(d, []*mpu.Param{l.weight}, device.F32, true)
				tensor := func(rows, columns int64, values []float32) device.Tensor {
					x := d.Arena.Zeroed(device.Workspace, device.F32, rows, columns)
					if values != nil {
						device.WriteSlice(d, x, values)
					}
					return x
				}
				device.WriteSlice(d, l.weight.Value, fp8Floats(t, name+".w"))
				x, dy, y, dx := tensor(tokens, in, fp8Floats(t, name+".x")), tensor(tokens, out, fp8Floats(t, name+".dy")), tensor(tokens, out, nil), tensor(tokens, in, nil)
				if err := l.forward(y, x); err != nil {
					t.Fatal(err)
				}
				if err := l.backward(dx, dy, x); err != nil {
					t.Fatal(err)
				}
				for what, got := range map[string]device.Tensor{"y": y, "dx": dx, "dw": l.weight.Grad} {
					diff, norm := 0.0, 0.0
					values := device.ReadSlice[float32](d, got)
					for i, want := range fp8Floats(t, name+"."+what) {
						diff += math.Pow(float64(values[i]-want), 2)
						norm += float64(want) * float64(want)
					}
					if !(math.Sqrt(diff/norm) < 1e-6) {
						t.Errorf("%s %s: %s is off by %g of its norm", name, kind, what, math.Sqrt(diff/norm))
					}
				}
			}
		}
	})
}
