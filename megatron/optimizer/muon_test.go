package optimizer

import (
	"fmt"
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// openTensors opens a file of a folder of golden cases.
func openTensors(t *testing.T, folder, name string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(golden.Dir(t, folder, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read32(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	values, err := f.Float32(name)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// Claim: with --muon-per-head each head's rows of queries, keys and values step as a weight of their own would, whose step is compared with other
// programs'.
func TestMuonPerHeadIsMuonOfEachHead(t *testing.T) {
	const groups, queries, channels, width = 2, 3, 4, 24 // heads of queries of a group
	const heads = groups * (queries + 2)
	d := ref.Open()
	defer d.Close()
	c := Config{Kind: Muon, Muon: MuonConfig{Momentum: 0.9, Nesterov: true, Scale: ScaleShape, Extra: 0.3, Precision: "high", Coefficients: "quintic", Steps: 5, PerHead: true}}
	fused := mpu.Uncut("qkv", mpu.Init{}, heads*channels, width)
	fused.QKV, fused.Head = [3]int64{queries * channels, channels, channels}, channels
	params := []*mpu.Param{fused, mpu.Uncut("proj", mpu.Init{}, width, heads*channels)}
	for i := range heads {
		params = append(params, mpu.Uncut(fmt.Sprint("head", i), mpu.Init{}, channels, width))
	}
	o := New(d, c, params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for step := range 3 {
		values := make([]float32, fused.Len())
		for i := range values {
			values[i] = float32(math.Sin(float64(i*i + 7*step)))
		}
		device.WriteSlice(d, fused.Grad, values)
		for i, p := range params[2:] {
			device.WriteSlice(d, p.Grad, values[i*channels*width:][:channels*width])
		}
		if _, err := o.Step(StepArgs{LR: 0.1, Factor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	got, moved := device.ReadSlice[float32](d, fused.Value), 0.0
	for i, p := range params[2:] {
		for j, want := range device.ReadSlice[float32](d, p.Value) {
			moved += math.Abs(float64(want))
			if at := i*channels*width + j; got[at] != want {
				t.Fatalf("head %d, element %d: %g, want %g", i, j, got[at], want)
			}
		}
	}
	if moved == 0 {
		t.Error("nothing moved")
	}
}
