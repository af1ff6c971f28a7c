package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/nf4"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Claim (golden/qlora, written by transformers 5.24 with bitsandbytes 0.50.2): a folder of NF4
// weights reads as its unquantised base quantised by package nf4, also in parts of any length, with
// GPT-2's transposed; what is not quantised reads as it is.
func TestReadsNF4(t *testing.T) {
	for name, count := range map[string]int{"llama-f32-single": 14, "llama-f32-double": 14, "llama-bf16-double": 14, "gpt2-f16-double": 8} {
		t.Run(name, func(t *testing.T) {
			base, quantised := opened(t, golden.Dir(t, "qlora", name, "base")), opened(t, golden.Dir(t, "qlora", name, "quantised"))
			if quantised.Quantization != NF4 || base.Quantization != "" {
				t.Fatal("quantization_config is not seen")
			}
			found := 0
			for _, s := range quantised.Mapping.Sources() {
				want, got := readAll(t, base, s.Name), readAll(t, quantised, s.Name)
				if d, ok := quantised.files.(*dequantized); ok && d.weights[s.Name] != nil {
					found++
					dtype, shape, _ := base.Info(s.Name)
					want = quantizedBytes(want, dtype, shape, s.Transposed, !strings.HasSuffix(name, "single"))
				}
				if !near(t, quantised, s.Name, got, want) {
					t.Errorf("%s differs", s.Name)
				}
				part := make([]byte, 12)
				if err := quantised.ReadAt(s.Name, part, 4); err != nil || !bytes.Equal(part, got[4:16]) {
					t.Errorf("%s: three elements from a place inside differ: %v", s.Name, err)
				}
			}
			if found != count {
				t.Errorf("%d weights are quantised, want %d", found, count)
			}
		})
	}
}

// Claim: a base seen through Quantized has the values of the folder that transformers quantised,
// of every tensor and of a box of it.
func TestQuantizedBase(t *testing.T) {
	for _, name := range []string{"llama-f32-single", "llama-f32-double", "llama-bf16-double", "gpt2-f16-double"} {
		base, err1 := OpenSource(golden.Dir(t, "qlora", name, "base"), checkpoint.OpenOptions{})
		theirs, err2 := OpenSource(golden.Dir(t, "qlora", name, "quantised"), checkpoint.OpenOptions{})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		rounded, err := Quantized(base, NF4, !strings.HasSuffix(name, "single"))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Quantized(theirs, NF4, true); err != nil || again != theirs {
			t.Errorf("%s: what is quantised is quantised again: %v", name, err)
		}
		for _, tensor := range theirs.Tensors() {
			boxes := []mpu.Piece{checkpoint.Uncut(tensor.Shape)}
			if len(tensor.Shape) == 2 {
				boxes = append(boxes, mpu.Piece{From: []int64{3, 5}, Size: []int64{7, 11}})
			}
			for _, box := range boxes {
				a, b := boxOf(t, rounded, tensor, box), boxOf(t, theirs, tensor, box)
				for i := range a {
					if !(math.Abs(a[i]-b[i]) <= 4e-6*math.Abs(b[i])) {
						t.Errorf("%s: %s, box of %v, element %d: %g, want %g", name, tensor.Name, box.Size, i, a[i], b[i])
						break
					}
				}
			}
		}
		_, _ = base.Close(), theirs.Close()
	}
}

func boxOf(t *testing.T, src checkpoint.Source, tensor checkpoint.Tensor, box mpu.Piece) []float64 {
	t.Helper()
	raw := make([]byte, box.Len()*checkpoint.Width(tensor.DType))
	if err := src.Read(tensor.Name, box, raw); err != nil {
		t.Fatal(err)
	}
	out := make([]float64, box.Len())
	safetensors.Decode(out, tensor.DType, raw)
	return out
}

// near allows for the mean of scales, whose last digits depend on the order of the sum.
func near(t *testing.T, f *Folder, name string, got, want []byte) bool {
	t.Helper()
	dtype, shape, _ := f.Info(name)
	a, b := make([]float64, elements(shape)), make([]float64, elements(shape))
	safetensors.Decode(a, dtype, got)
	safetensors.Decode(b, dtype, want)
	for i := range a {
		if !(math.Abs(a[i]-b[i]) <= 4e-6*math.Abs(b[i])) {
			return false
		}
	}
	return true
}

func opened(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func readAll(t *testing.T, f *Folder, name string) []byte {
	t.Helper()
	dtype, shape, _ := f.Info(name)
	raw := make([]byte, elements(shape)*checkpoint.Width(dtype))
	if err := f.ReadAt(name, raw, 0); err != nil {
		t.Fatal(err)
	}
	return raw
}

// quantizedBytes is a weight after quantising it as [out, in].
func quantizedBytes(raw []byte, dtype string, shape []int64, transposed, double bool) []byte {
	wide := make([]float64, elements(shape))
	safetensors.Decode(wide, dtype, raw)
	index := func(i int) int { return i }
	if transposed {
		index = func(i int) int { return i%int(shape[1])*int(shape[0]) + i/int(shape[1]) }
	}
	values := make([]float32, len(wide))
	for i, v := range wide {
		values[index(i)] = float32(v)
	}
	q, after := nf4.Quantize(values, double), make([]float32, len(values))
	q.Dequantize(after, 0)
	for i := range wide {
		wide[i] = float64(after[index(i)])
	}
	out, _ := safetensors.Encode(nil, dtype, wide)
	return out
}

// Claim: a base that is written as NF4 has the tensors of transformers' folder: names, types,
// shapes, codes to the byte, scales to 1e-6, and the JSON of each weight.
func TestWritesNF4(t *testing.T) {
	for _, name := range []string{"llama-f32-single", "llama-f32-double", "llama-bf16-double", "gpt2-f16-double"} {
		src, err := OpenSource(golden.Dir(t, "qlora", name, "base"), checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "out")
		_, err = Write(t.Context(), dir, src, checkpoint.WriteOptions{Quantization: NF4, DoubleQuant: !strings.HasSuffix(name, "single")})
		if src.Close(); err != nil {
			t.Fatal(err)
		}
		if opened(t, dir).Quantization != NF4 {
			t.Errorf("%s: config.json does not say so", name)
		}
		got, want := tensorsOf(t, dir), tensorsOf(t, golden.Dir(t, "qlora", name, "quantised"))
		if !slices.Equal(slices.Sorted(slices.Values(got.Names())), slices.Sorted(slices.Values(want.Names()))) || len(want.Names()) < 60 {
			t.Fatalf("%s: tensors are %v, want %v", name, got.Names(), want.Names())
		}
		for _, tensor := range want.Names() {
			if err := sameTensor(got, want, tensor); err != nil {
				t.Errorf("%s: %s: %v", name, tensor, err)
			}
			if info, _ := got.Info(tensor); info.Offset%checkpoint.Width(info.DType) != 0 {
				t.Errorf("%s: %s of %s begins at byte %d", name, tensor, info.DType, info.Offset)
			}
		}
	}
}

func tensorsOf(t *testing.T, dir string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, safetensors.SingleName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sameTensor compares a tensor of two files.
func sameTensor(got, want *safetensors.File, name string) error {
	a, err := got.Read(name)
	b, err2 := want.Read(name)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	have, _ := got.Info(name)
	info, _ := want.Info(name)
	if strings.HasSuffix(name, ".quant_state.bitsandbytes__nf4") {
		return sameState(a, b)
	}
	if have.DType != info.DType || !slices.Equal(have.Shape, info.Shape) {
		return fmt.Errorf("%s%v, want %s%v", have.DType, have.Shape, info.DType, info.Shape)
	}
	if info.DType != "F32" {
		if !bytes.Equal(a, b) {
			return errors.New("bytes differ")
		}
		return nil
	}
	x, y := make([]float64, len(a)/4), make([]float64, len(b)/4)
	safetensors.Decode(x, "F32", a)
	safetensors.Decode(y, "F32", b)
	for i := range x {
		if !(math.Abs(x[i]-y[i]) <= 1e-6*math.Abs(y[i])) {
			return fmt.Errorf("element %d is %g, want %g", i, x[i], y[i])
		}
	}
	return nil
}

// sameState compares the JSON of two weights; only the mean of scales may differ, by rounding.
func sameState(a, b []byte) error {
	var x, y nf4.State
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		return err
	}
	if (x.NestedOffset == nil) != (y.NestedOffset == nil) || x.NestedOffset != nil && math.Abs(*x.NestedOffset-*y.NestedOffset) > 2e-6**y.NestedOffset {
		return fmt.Errorf("%s, want %s", a, b)
	}
	x.NestedOffset, y.NestedOffset = nil, nil
	if !reflect.DeepEqual(x, y) {
		return fmt.Errorf("%s, want %s", a, b)
	}
	return nil
}

// Claim: a quantised folder with a part missing, of another length or of another kind is refused
// in one line that names the tensor.
func TestBrokenNF4(t *testing.T) {
	const weight = "model.layers.0.mlp.down_proj.weight"
	for name, c := range map[string]struct{ old, new, says string }{
		"no state":      {weight + ".quant_state.bitsandbytes__nf4", weight + ".quant_state.bitsandbytes__nfx", weight},
		"no scales":     {weight + ".absmax", weight + ".absmix", weight},
		"other blocks":  {`"blocksize": 64`, `"blocksize": 32`, "blocks must have 64 values"},
		"other shape":   {`"shape": [32, 88]`, `"shape": [32, 89]`, "codes for the shape of the weight"},
		"other nesting": {`"nested_blocksize": 256`, `"nested_blocksize": 128`, "nested blocks 256"},
		"int8":          {`"load_in_4bit": true`, `"load_in_4bit": false`, "quantization_config"},
		"fp4":           {`"bnb_4bit_quant_type": "nf4"`, `"bnb_4bit_quant_type": "fp4"`, "quantization_config"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Dir(t, "qlora", "llama-f32-double", "quantised"))); err != nil {
			t.Fatal(err)
		}
		replaced := 0
		for _, file := range []string{ConfigName, safetensors.SingleName} {
			path := filepath.Join(dir, file)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if pad := len(c.old) - len(c.new); file == safetensors.SingleName && pad > 0 {
				c.new += strings.Repeat(" ", pad)
			}
			replaced += bytes.Count(raw, []byte(c.old))
			if err := os.WriteFile(path, slices.Concat(bytes.Replace(raw, []byte(c.old), []byte(c.new), 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Open(dir)
		if replaced == 0 || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s (%d replaced): %v", name, replaced, err)
		}
	}
}
