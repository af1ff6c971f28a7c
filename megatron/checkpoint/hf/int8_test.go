package hf

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// Claim (bitsandbytes 0.50, int8_vectorwise_quant and int8_vectorwise_dequant on a CPU): codes, scales and
// the values that they stand for; f16 comes first, a product half-way between codes is rounded as it lies in f32.
func TestInt8OfBitsAndBytes(t *testing.T) {
	values := []float32{1, -0.5, 0.25, 0.1, 0.3, 0.30001, -0.29, 1e-5, 2, 1.0 / 127, 3.0 / 127, -5.0 / 127, 0.47607421875, 0.238037109375, 0, 0, 0, 0, 0, 0}
	w, err := quantizeInt8(values, 4)
	if err != nil {
		t.Fatal(err)
	}
	var codes []int8
	for _, c := range w.codes {
		codes = append(codes, int8(c))
	}
	if want := []int8{127, -64, 32, 13, 127, 127, -123, 0, 127, 0, 1, -2, 127, 63, 0, 0, 0, 0, 0, 0}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if want := []float32{1, 0.300048828125, 2, 0.47607421875, 0}; !slices.Equal(w.scales, want) {
		t.Errorf("scales %v, want %v", w.scales, want)
	}
	got := make([]float32, 12)
	w.Dequantize(got, 0)
	for i, want := range []float32{1.0, -0.5039370059967041, 0.25196850299835205, 0.10236220061779022, 0.300048828125, 0.300048828125, -0.29059848189353943, 0, 2, 0, 0.015748031437397003, -0.031496062874794006} {
		if got[i] != want {
			t.Errorf("element %d is %.17g, want %.17g", i, got[i], want)
		}
	}
	if _, err := quantizeInt8([]float32{1e6, 1}, 2); err == nil {
		t.Error("a value beyond f16 is let through")
	}
}

// Claim: a folder written with int8 weights reads as the base rounded by Quantized, GPT-2's transposed ones
// too, in the base's type; embeddings, output layer and norms keep their bytes.
func TestInt8Folders(t *testing.T) {
	for name, count := range map[string]int{"llama-f32-single": 14, "llama-bf16-double": 14, "gpt2-f16-double": 8} {
		base, err := OpenSource(golden.Dir(t, "qlora", name, "base"), checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		rounded, err := Quantized(base, Int8, false)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "out")
		if _, err := Write(t.Context(), dir, base, checkpoint.WriteOptions{Quantization: Int8}); err != nil {
			t.Fatal(err)
		}
		read, err := OpenSource(dir, checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		if read.Info().Quantization != Int8 {
			t.Errorf("%s: config.json does not say so", name)
		}
		if n := len(opened(t, dir).files.(*dequantized).weights); n != count {
			t.Errorf("%s: %d weights are int8, want %d", name, n, count)
		}
		differ := 0
		for _, tensor := range base.Tensors() {
			full := checkpoint.Uncut(tensor.Shape)
			a, b, c := boxOf(t, rounded, tensor, full), boxOf(t, read, tensor, full), boxOf(t, base, tensor, full)
			if !slices.Equal(a, b) {
				t.Errorf("%s: %s differs", name, tensor.Name)
			}
			if !slices.Equal(a, c) {
				differ++
			}
			for i := range a {
				if !(math.Abs(a[i]-c[i]) <= 0.02) {
					t.Errorf("%s: %s: element %d is %g, of %g", name, tensor.Name, i, a[i], c[i])
					break
				}
			}
		}
		if differ == 0 {
			t.Errorf("%s: nothing was rounded", name)
		}
	}
}

// Claim: a folder whose parts do not fit each other is refused in one line that names the tensor.
func TestBrokenInt8(t *testing.T) {
	const weight, scales, format = "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.down_proj.SCB", "model.layers.0.mlp.down_proj.weight_format"
	base, err := OpenSource(golden.Dir(t, "qlora", "llama-f32-single", "base"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	good := filepath.Join(t.TempDir(), "out")
	if _, err := Write(t.Context(), good, base, checkpoint.WriteOptions{Quantization: Int8}); err != nil {
		t.Fatal(err)
	}
	f := tensorsOf(t, good)
	config, err := os.ReadFile(filepath.Join(good, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(name string, info *safetensors.Info, raw []byte) []byte // nil: the tensor is left out
		says   string
	}{
		"no scales":    {func(n string, _ *safetensors.Info, raw []byte) []byte { return keepUnless(n == scales, raw) }, weight},
		"no codes":     {func(n string, _ *safetensors.Info, raw []byte) []byte { return keepUnless(n == weight, raw) }, weight},
		"other layout": {func(n string, _ *safetensors.Info, raw []byte) []byte { return set(n == format, raw, 1) }, "weight_format [1]"},
		"scale of nan": {func(n string, _ *safetensors.Info, raw []byte) []byte {
			return set(n == scales, raw, 255, 255, 255, 255)
		}, "the scale of row 0 is NaN"},
		"fewer scales":  {func(n string, i *safetensors.Info, raw []byte) []byte { return shorter(n == scales, i, raw) }, "must be F32 [32]"},
		"other element": {func(n string, i *safetensors.Info, raw []byte) []byte { return retyped(n == weight, i, raw) }, "an int8 weight must be I8 of shape [out, in]"},
	} {
		dir := t.TempDir()
		var infos []safetensors.Info
		var parts [][]byte
		for _, n := range f.Names() {
			info, _ := f.Info(n)
			raw, err := f.Read(n)
			if err != nil {
				t.Fatal(err)
			}
			if raw = c.change(n, &info, raw); raw != nil {
				infos, parts = append(infos, safetensors.Info{Name: n, DType: info.DType, Shape: info.Shape}), append(parts, raw)
			}
		}
		w, err := safetensors.Create(filepath.Join(dir, safetensors.SingleName), infos, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range parts {
			if _, err := w.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ConfigName), config, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSource(dir, checkpoint.OpenOptions{}); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %s", name, err, c.says)
		}
	}
}

func keepUnless(drop bool, raw []byte) []byte {
	if drop {
		return nil
	}
	return raw
}

func set(here bool, raw []byte, first ...byte) []byte {
	if here {
		copy(raw, first)
	}
	return raw
}

func shorter(here bool, info *safetensors.Info, raw []byte) []byte {
	if here {
		info.Shape = []int64{info.Shape[0] - 1}
		return raw[:len(raw)-4]
	}
	return raw
}

func retyped(here bool, info *safetensors.Info, raw []byte) []byte {
	if here {
		info.DType = "U8"
	}
	return raw
}

// Claim: config.json has 6.0 where transformers checks that a number is a float.
func TestQuantizationConfigHasFloats(t *testing.T) {
	for _, kind := range []string{NF4, Int8} {
		text, err := json.Marshal(quantizationConfig(kind, false))
		if err != nil || !strings.Contains(string(text), `"llm_int8_threshold":6.0`) {
			t.Errorf("%s, %v", text, err)
		}
	}
}
