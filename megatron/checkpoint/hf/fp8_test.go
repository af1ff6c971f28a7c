package hf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// Claim (golden/quantised, made by transformers 5.24): folders of FP8 and MXFP4 weights read as what transformers
// dequantises, byte for byte, also in parts.
func TestReadsQuantisedFloats(t *testing.T) {
	for kind, want := range map[string]string{"blocks": FP8, "powers": FP8, "edges": FP8, "whole": FP8, "mxfp4": MXFP4} {
		t.Run(kind, func(t *testing.T) {
			dir := golden.Dir(t, "quantised", kind)
			var sums map[string]string
			golden.ReadJSON(t, golden.Dir(t, "quantised", kind+".json"), &sums)
			src, err := OpenSource(dir, checkpoint.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if src.Info().Quantization != want {
				t.Fatalf("quantization is %q", src.Info().Quantization)
			}
			checkSums(t, exported(t, src, checkpoint.WriteOptions{}), sums)
			f := opened(t, dir)
			for _, s := range f.Mapping.Sources() {
				all, width := readAll(t, f, s.Name), int64(2)
				for _, part := range [][2]int64{{1, 2}, {3, 37}, {17, 29}} {
					got := make([]byte, part[1]*width)
					if int64(len(all)) < (part[0]+part[1])*width {
						continue
					}
					if err := f.ReadAt(s.Name, got, part[0]*width); err != nil || !bytes.Equal(got, all[part[0]*width:][:len(got)]) {
						t.Errorf("%s: %d elements from %d on differ from the whole: %v", s.Name, part[1], part[0], err)
					}
				}
			}
		})
	}
}

// exported is the path of src's tensors, written.
func exported(t *testing.T, src checkpoint.Source, o checkpoint.WriteOptions) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	if _, err := Write(context.Background(), dir, src, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

func checkSums(t *testing.T, dir string, sums map[string]string) {
	t.Helper()
	f, err := safetensors.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Names()) != len(sums) {
		t.Errorf("%d tensors, want %d", len(f.Names()), len(sums))
	}
	for name, want := range sums {
		info, _ := f.Info(name)
		raw := make([]byte, info.Bytes)
		if err := f.ReadAt(name, raw, 0); err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s differs from what transformers reads", name)
		}
	}
}

// Claim: rounding to MXFP4 has the codes and scales of OpenAI's converter (triton_kernels' downcast_to_mxfp_torch).
func TestRoundsToMXFP4(t *testing.T) {
	f, err := safetensors.Open(golden.Dir(t, "quantised", "mxfp4-rounding.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values, err1 := f.Float32("values")
	codes, err2 := f.Read("codes")
	scales, err3 := f.Read("scales")
	if err1 != nil || err2 != nil || err3 != nil || len(values) != 64*256 {
		t.Fatal(err1, err2, err3)
	}
	for i, scale := range scales {
		got, exponent := quantizeMXFP4((*[32]float32)(values[i*32:]))
		if want := codes[i*16:][:16]; exponent != scale || !bytes.Equal(got[:], want) {
			t.Errorf("group %d, %g: %x %d, want %x %d", i, values[i*32:][:4], got, exponent, want, scale)
		}
	}
}

// Claim: what is read of MXFP4 and written as MXFP4 has the same values, but below 2^-120, where the converter has no scales, and the writer refuses other families by name.
func TestWritesMXFP4(t *testing.T) {
	dir := golden.Dir(t, "quantised", "mxfp4")
	src, err := OpenSource(dir, checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	again := exported(t, src, checkpoint.WriteOptions{Quantization: MXFP4})
	a, b := opened(t, dir), opened(t, again)
	if b.Quantization != MXFP4 {
		t.Fatal("config.json does not say that the weights are MXFP4")
	}
	if info, ok := b.files.(slabbed).Files.(*mxfp4).Files.Info("model.layers.0.mlp.experts.gate_up_proj_blocks"); !ok || info.DType != "U8" {
		t.Errorf("experts are stored as %v", info)
	}
	for _, s := range a.Mapping.Sources() {
		x, y := make([]float64, elements(s.Shape)), make([]float64, elements(s.Shape))
		safetensors.Decode(x, "BF16", readAll(t, a, s.Name))
		safetensors.Decode(y, "BF16", readAll(t, b, s.Name))
		for i := range x {
			if x[i] != y[i] && math.Abs(x[i]) > math.Ldexp(1, -120) {
				t.Errorf("%s, element %d: %g, was %g", s.Name, i, y[i], x[i])
				break
			}
		}
	}
	other, err := OpenSource(golden.Dir(t, "quantised", "whole"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if rounded, err := Quantized(other, NF4, false); err != nil || rounded == other {
		t.Errorf("FP8 weights are taken for NF4: %v", err)
	}
	if _, err := Write(context.Background(), filepath.Join(t.TempDir(), "out"), other, checkpoint.WriteOptions{Quantization: MXFP4}); err == nil || !strings.Contains(err.Error(), "ministral3 model") {
		t.Errorf("of another family: %v", err)
	}
}

// Claim: parts that do not fit a weight, and settings that are not known, are one line that names file and tensor.
func TestRefusesQuantisedFloats(t *testing.T) {
	const scales, gate = "model.layers.0.mlp.down_proj.weight_scale_inv", "model.layers.0.mlp.experts.gate_up_proj"
	for name, c := range map[string]struct {
		kind         string
		tensor       func(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte)
		config, with string
		says         string
	}{
		"scales gone":        {"blocks", only(scales, nil), "", "", `model.safetensors: tensor "model.layers.0.mlp.down_proj.weight" is F8_E4M3, but no file of the folder has its scales model.layers.0.mlp.down_proj.weight_scale_inv`},
		"a row less":         {"blocks", only(scales, func(i *safetensors.Info, raw []byte) []byte { i.Shape[0]--; return raw[:i.Shape[0]*i.Shape[1]*4] }), "", "", `scales model.layers.0.mlp.down_proj.weight_scale_inv have the shape [3 12]`},
		"other type":         {"blocks", only(scales, func(i *safetensors.Info, raw []byte) []byte { i.DType = "I32"; return raw }), "", "", "; scales must be F32, BF16 or F16, or exponents in F8_E8M0"},
		"NaN":                {"blocks", only(scales, func(i *safetensors.Info, raw []byte) []byte { copy(raw[4:], "\xff\xff\xff\x7f"); return raw }), "", "", "scale 1 is NaN"},
		"weight gone":        {"blocks", only("model.layers.0.mlp.down_proj.weight", nil), "", "", `tensor "model.layers.0.mlp.down_proj.weight" is missing`},
		"other blocks":       {"blocks", all, "[\n      16,", "[\n      32,", "weight_block_size [32 8]"},
		"one for blocks":     {"whole", all, `"weight_block_size": null`, `"weight_block_size": [16, 16]`, "weight_block_size [16 16]"},
		"three":              {"blocks", all, "[\n      16,", "[\n      16, 1,", "two numbers of at least 1"},
		"zero":               {"blocks", all, "[\n      16,", "[\n      0,", "two numbers of at least 1"},
		"method":             {"blocks", all, `"quant_method": "fp8"`, `"quant_method": "gptq"`, `quant_method "gptq" is not supported`},
		"format":             {"blocks", all, `"fmt": "e4m3"`, `"fmt": "e3m4"`, `fmt "e3m4" is not supported`},
		"MXFP4 elsewhere":    {"blocks", all, `"quant_method": "fp8"`, `"quant_method": "mxfp4"`, "mxfp4 in a deepseek_v3 model"},
		"MXFP4, scales gone": {"mxfp4", only(gate+"_scales", nil), "", "", `tensor "` + gate + `_blocks" is incomplete`},
		"MXFP4, a row less": {"mxfp4", only(gate+"_scales", func(i *safetensors.Info, raw []byte) []byte {
			i.Shape[0]--
			return raw[:elements(i.Shape)]
		}), "", "", gate + `_scales" is U8 [3`},
		"MXFP4, no number": {"mxfp4", only(gate+"_scales", func(i *safetensors.Info, raw []byte) []byte { raw[9] = 255; return raw }), "", "", "exponent 9 is 255"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damaged(t, golden.Dir(t, "quantised", c.kind), c.tensor)
			path := filepath.Join(dir, ConfigName)
			config, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(config), c.config, c.with, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			src, err := OpenSource(dir, checkpoint.OpenOptions{})
			if err == nil {
				_, err = Write(context.Background(), filepath.Join(dir, "out"), src, checkpoint.WriteOptions{})
				_ = src.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v; want %s", err, c.says)
			}
		})
	}
}

// only changes one tensor, or leaves it out.
func only(name string, change func(info *safetensors.Info, raw []byte) []byte) func(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte) {
	return func(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte) {
		switch {
		case info.Name != name:
			return info, raw
		case change == nil:
			return nil, nil
		}
		return info, change(info, raw)
	}
}

func all(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte) { return info, raw }

// damaged is a copy of a folder with other tensors.
func damaged(t *testing.T, from string, change func(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigName), config, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.OpenFolder(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var infos []safetensors.Info
	var data [][]byte
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		raw := make([]byte, info.Bytes)
		if err := f.ReadAt(name, raw, 0); err != nil {
			t.Fatal(err)
		}
		info.Shape = append([]int64{}, info.Shape...)
		if kept, raw := change(&info, raw); kept != nil {
			infos, data = append(infos, *kept), append(data, raw)
		}
	}
	_, err = safetensors.WriteFile(context.Background(), filepath.Join(dir, safetensors.SingleName), infos, nil, func(i int, from, to int64, dst []byte) error {
		row := int64(len(dst)) / max(1, to-from)
		copy(dst, data[i][from*row:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
