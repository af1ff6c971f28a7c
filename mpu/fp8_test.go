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

// fp8Recipes are the recipes with the names that golden/fp8 has for their results.
var fp8Recipes = map[string]mpu.FP8Recipe{"": mpu.FP8Blockwise, "mxfp8.": mpu.FP8MX, "tensorwise.": mpu.FP8Tensorwise}

// fp8Layer is a linear layer whose operands are rounded, on one rank.
type fp8Layer struct {
	weight, bias *mpu.Param
	forward      func(y, x device.Tensor) error
	backward     func(dx, dy, x device.Tensor) error
}

// fp8Layers make it, by how it would be cut over ranks.
var fp8Layers = map[string]func(*device.Device, mpu.LinearConfig) fp8Layer{"column": fp8Column, "row": fp8Row, "complete": fp8Complete}

func fp8Alone(d *device.Device) mpu.Region { return mpu.Region{Group: comm.Solo("tp", 0, d)} }

func fp8Column(d *device.Device, c mpu.LinearConfig) fp8Layer {
	l := mpu.NewColumnParallelLinear(fp8Alone(d), c)
	return fp8Layer{l.Weight, l.Bias, func(y, x device.Tensor) error {
		return l.Forward(d, &mpu.Hooks{}, y, x, device.NoEpilogue, device.Tensor{})
	}, func(dx, dy, x device.Tensor) error { return l.Backward(d, &mpu.Hooks{}, dx, dy, x) }}
}

func fp8Row(d *device.Device, c mpu.LinearConfig) fp8Layer {
	l := mpu.NewRowParallelLinear(fp8Alone(d), c)
	return fp8Layer{l.Weight, l.Bias, func(y, x device.Tensor) error { return l.Forward(d, &mpu.Hooks{}, y, x) },
		func(dx, dy, x device.Tensor) error { return l.Backward(d, &mpu.Hooks{}, dx, dy, x) }}
}

func fp8Complete(d *device.Device, c mpu.LinearConfig) fp8Layer {
	l := mpu.NewRoundedLinear(fp8Alone(d), c)
	return fp8Layer{l.Weight, l.Bias, func(y, x device.Tensor) error { return l.Forward(d, y, x) },
		func(dx, dy, x device.Tensor) error { return l.Backward(d, &mpu.Hooks{}, dx, dy, x) }}
}

// Claim: a linear layer gives with every recipe the output, the input's gradient and the weight's of torch's casts with products in float64, with
// gradients in either format; the same whichever way it would be cut. In f32 results differ by the order of sums; in bf16 by their rounding as well.
func TestFP8Layer(t *testing.T) {
	const tokens, in, out = 130, 132, 136
	onDevices(t, func(t *testing.T, d *device.Device) {
		for name, gradients := range map[string]int32{"e4m3": device.E4M3, "hybrid": device.E5M2} {
			for prefix, recipe := range fp8Recipes {
				for _, dtype := range []device.DType{device.F32, device.BF16} {
					c := mpu.LinearConfig{Name: "layer", Out: out, In: in, FP8: &mpu.FP8{Recipe: recipe, Gradients: gradients}}
					for kind, layer := range fp8Layers {
						l := layer(d, c)
						mpu.Allocate(d, []*mpu.Param{l.weight}, dtype, true)
						tensor := func(rows, columns int64, from string) device.Tensor {
							x := d.Arena.Zeroed(device.Workspace, dtype, rows, columns)
							if from != "" {
								writeFP8(d, x, fp8Floats(t, name+"."+from))
							}
							return x
						}
						writeFP8(d, l.weight.Value, fp8Floats(t, name+".w"))
						x, dy, y, dx := tensor(tokens, in, "x"), tensor(tokens, out, "dy"), tensor(tokens, out, ""), tensor(tokens, in, "")
						if err := l.forward(y, x); err != nil {
							t.Fatal(err)
						}
						if err := l.backward(dx, dy, x); err != nil {
							t.Fatal(err)
						}
						for what, got := range map[string]device.Tensor{"y": y, "dx": dx, "dw": l.weight.Grad} {
							fp8Near(t, prefix+name+"."+what+" "+kind, readFP8(d, got), fp8Floats(t, prefix+name+"."+what), got.DType)
						}
					}
				}
			}
		}
	})
}

// fp8Near compares results of f32 sums, which other orders change by 1e-6 of their norm, rounded to a dtype.
func fp8Near(t *testing.T, name string, got, want []float32, dtype device.DType) {
	t.Helper()
	ulp := map[device.DType]float64{device.F32: 0, device.BF16: 1.0 / 256}[dtype]
	diff, norm := 0.0, 0.0
	for i, w := range want {
		off := max(0, math.Abs(float64(got[i]-w))-ulp*math.Abs(float64(w)))
		diff += off * off
		norm += float64(w) * float64(w)
	}
	if len(got) != len(want) || !(math.Sqrt(diff/norm) < 1e-6) {
		t.Errorf("%s in %s is off by %g of its norm", name, dtype, math.Sqrt(diff/norm))
	}
}

func writeFP8(d *device.Device, t device.Tensor, values []float32) {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	d.Write(t, device.FromFloat64(t.DType, wide))
}

func readFP8(d *device.Device, t device.Tensor) []float32 {
	raw := make([]byte, t.Bytes())
	d.Read(raw, t)
	var values []float32
	for _, v := range device.ToFloat64(t.DType, raw) {
		values = append(values, float32(v))
	}
	return values
}

// Claim: what follows a product is that of the sum in f32 where operands are f32 and results bf16: bias, the tensor before an activation, and the
// activation of the unrounded sum.
func TestFP8Epilogue(t *testing.T) {
	const tokens, in, out = 130, 132, 136
	onDevices(t, func(t *testing.T, d *device.Device) {
		alone := mpu.Region{Group: comm.Solo("tp", 0, d)}
		l := mpu.NewColumnParallelLinear(alone, mpu.LinearConfig{Name: "layer", Out: out, In: in, Bias: true, FP8: &mpu.FP8{Recipe: mpu.FP8Tensorwise}})
		mpu.Allocate(d, []*mpu.Param{l.Weight, l.Bias}, device.BF16, true)
		bias := make([]float32, out)
		for i := range bias {
			bias[i] = float32(i%17) / 16
		}
		writeFP8(d, l.Weight.Value, fp8Floats(t, "e4m3.w"))
		writeFP8(d, l.Bias.Value, bias)
		x, y, aux := d.Arena.Alloc(device.Workspace, device.BF16, tokens, in), d.Arena.Alloc(device.Workspace, device.BF16, tokens, out), d.Arena.Alloc(device.Workspace, device.BF16, tokens, out)
		writeFP8(d, x, fp8Floats(t, "e4m3.x"))
		if err := l.Forward(d, &mpu.Hooks{}, y, x, device.GeluErfEpilogue, aux); err != nil {
			t.Fatal(err)
		}
		before := fp8Floats(t, "tensorwise.e4m3.y")
		after := make([]float32, len(before))
		for i := range before {
			before[i] += bias[i%out]
			v := float64(before[i])
			after[i] = float32(v / 2 * math.Erfc(-v/math.Sqrt2))
		}
		fp8Near(t, "before", readFP8(d, aux), before, device.BF16)
		fp8Near(t, "after", readFP8(d, y), after, device.BF16)
	})
}

// Claim: numbers of 4 bits stand for what the OCP Microscaling Formats Specification lists and ml_dtypes has; every bf16 number in their range is
// rounded as ml_dtypes casts it.
func TestFP4RoundsAsTheTable(t *testing.T) {
	values := fp8Floats(t, "values.e2m1")
	for i, want := range []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6} {
		if values[i] != want || values[i+8] != -want {
			t.Errorf("code %d: %g and %g, want ±%g", i, values[i], values[i+8], want)
		}
	}
	const most = 448 * 6 // of a tensor whose scale is 1, with blocks whose scale is 1
	var x, want []float32
	for bits, code := range fp8File(t, "cast.bf16.e2m1") {
		v := math.Float32frombits(uint32(bits) << 16)
		if !(v >= -6 && v <= 6) {
			continue
		}
		if len(x)%16 == 0 {
			x, want = append(x, 6), append(want, 6)
		}
		x, want = append(x, v), append(want, values[code])
	}
	for len(x)%16 != 0 {
		x, want = append(x, 0), append(want, 0)
	}
	if t.Logf("%d numbers of bf16", len(x)); len(x) < 33000 {
		t.Errorf("%d numbers of bf16", len(x))
	}
	onDevices(t, func(t *testing.T, d *device.Device) {
		sameFP4(t, d, "casts", x, want, most, int64(len(x)/16), 1, 16)
	})
}

// sameFP4 compares the bits of NVFP4's values of x [rows, ...].
func sameFP4(t *testing.T, d *device.Device, name string, x, want []float32, most float32, rows int64, height, width int32) {
	t.Helper()
	in, out := d.Arena.Alloc(device.Workspace, device.F32, rows, int64(len(x))/rows), d.Arena.Alloc(device.Workspace, device.F32, rows, int64(len(x))/rows)
	largest := d.Arena.Alloc(device.Workspace, device.F32, 1)
	device.WriteSlice(d, in, x)
	device.WriteSlice(d, largest, []float32{most})
	d.RoundNVFP4(device.RoundNVFP4Args{Out: out, X: in, Most: largest, Rows: height, Columns: width})
	sameBits(t, name, device.ReadSlice[float32](d, out), want)
}

// sameBits compares numbers; zeros of either sign are equal.
func sameBits(t *testing.T, name string, got, want []float32) {
	t.Helper()
	wrong := 0
	for i := range want {
		if got[i] != want[i] {
			if wrong++; wrong < 4 {
				t.Errorf("%s, number %d: %g, want %g", name, i, got[i], want[i])
			}
		}
	}
	if len(got) != len(want) || wrong > 0 {
		t.Errorf("%s: %d of %d wrong", name, wrong, len(want))
	}
}

// Claim: NVFP4's two levels of scales, and MXFP8's scales of blocks of every magnitude, give the bits of their rules step by step with the casts of
// torch and ml_dtypes; a scale of MXFP8 is a number of E8M0.
func TestBlockScalesAsTheirRules(t *testing.T) {
	x := fp8Floats(t, "nvfp4.x")
	most := float32(0)
	for _, v := range x {
		most = max(most, v, -v)
	}
	for code, v := range fp8Floats(t, "values.e8m0")[:255] {
		if float64(v) != math.Ldexp(1, code-127) {
			t.Errorf("code %d of E8M0: %g", code, v)
		}
	}
	onDevices(t, func(t *testing.T, d *device.Device) {
		sameFP4(t, d, "1x16", x, fp8Floats(t, "nvfp4.row"), most, 64, 1, 16)
		sameFP4(t, d, "16x16", x, fp8Floats(t, "nvfp4.square"), most, 64, 16, 16)
		blocks := fp8Floats(t, "mx.x")
		in, out := d.Arena.Alloc(device.Workspace, device.F32, int64(len(blocks)/64), 64), d.Arena.Alloc(device.Workspace, device.F32, int64(len(blocks)/64), 64)
		device.WriteSlice(d, in, blocks)
		for format, name := range map[int32]string{device.E4M3: "mx.e4m3", device.E5M2: "mx.e5m2"} {
			d.RoundFP8(device.RoundFP8Args{Out: out, X: in, Rows: 1, Columns: 32, Format: format, Rule: device.ScaleE8M0})
			sameBits(t, name, device.ReadSlice[float32](d, out), fp8Floats(t, name))
		}
	})
}
