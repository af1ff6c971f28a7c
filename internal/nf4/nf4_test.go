package nf4

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

// Claim: codes, scales and values of tensors of many shapes and sizes are those of bitsandbytes
// 0.50.2 (golden/qlora/tensors), with and without double quantisation.
func TestAgrees(t *testing.T) {
	var list struct {
		NF4        []float32 `json:"nf4"`
		NestedCode []float32 `json:"nested_code"`
		Tensors    []struct {
			Name       string
			DType      string  `json:"dtype"`
			ZeroBlocks []int64 `json:"zero_blocks"`
			Offset     float64 `json:"nested_offset"`
			Free       bool    `json:"nested_codes_free"`
		}
	}
	golden.ReadJSON(t, golden.Dir(t, "qlora", "tensors", "tensors.json"), &list)
	f, err := safetensors.Open(golden.Dir(t, "qlora", "tensors", "tensors.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !slices.Equal(list.NF4, Table[:]) || !slices.Equal(list.NestedCode, Dynamic[:]) {
		t.Errorf("tables are %v and %v", Table, Dynamic)
	}
	if len(list.Tensors) < 15 {
		t.Fatalf("%d tensors", len(list.Tensors))
	}
	for _, c := range list.Tensors {
		x := values(t, f, "x."+c.Name)
		for _, kind := range []string{"single", "nested"} {
			q, name := Quantize(x, kind == "nested"), c.Name+"."+kind
			want := raw(t, f, "weight."+name)
			for _, b := range c.ZeroBlocks { // any code gives 0
				for i := b * Block / 2; i < min((b+1)*Block/2, int64(len(want))); i++ {
					want[i] = q.Packed[i]
				}
			}
			if !bytes.Equal(q.Packed, want) {
				t.Errorf("%s: codes differ", name)
			}
			if kind == "nested" && !c.Free && math.Abs(float64(q.Offset)-c.Offset) > 2e-6*math.Abs(c.Offset) {
				t.Errorf("%s: offset %g, want %g", name, q.Offset, c.Offset)
			}
			if kind == "nested" && !c.Free && !bytes.Equal(q.Codes, raw(t, f, "absmax."+name)) {
				t.Errorf("%s: codes of scales differ", name)
			}
			got := make([]float32, len(x))
			q.Dequantize(got, 0)
			bits := map[string]string{"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[c.DType]
			rounded, _ := safetensors.Encode(nil, bits, got)
			out := make([]float64, len(x))
			safetensors.Decode(out, bits, rounded)
			for i, v := range values(t, f, "dequantised."+name) {
				if !(math.Abs(out[i]-float64(v)) <= 4e-6*math.Abs(float64(v))) {
					t.Errorf("%s, element %d: %g, want %g", name, i, out[i], v)
					break
				}
			}
		}
	}
}

func values(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	v, err := f.Float32(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func raw(t *testing.T, f *safetensors.File, name string) []byte {
	t.Helper()
	b, err := f.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
