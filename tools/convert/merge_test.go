package convert

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

// Claim (golden/merge, PEFT 0.21): a folder with an adapter merged has the names, types and shapes
// that merge_and_unload writes; weights without an adapter keep their bytes, and merged ones are
// equal to a unit in the last digit in all but 2 % of the elements (float32: to 64 units).
func TestMergesOfPEFT(t *testing.T) {
	dirs, _ := filepath.Glob(filepath.Join(golden.Dir(t, "merge"), "*", "case.json"))
	if len(dirs) < 6 {
		t.Fatalf("only %d cases", len(dirs))
	}
	for _, file := range dirs {
		dir, name := filepath.Dir(file), filepath.Base(filepath.Dir(file))
		var c struct {
			Type   string   `json:"base_dtype"`
			Merged []string `json:"merged_tensors"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if _, notes, err := call("--input", filepath.Join(dir, "base"), "--adapter", filepath.Join(dir, "adapter"), "--to", "hf", "--output", out); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, notes)
		}
		got, want := openFolder(t, out), openFolder(t, filepath.Join(dir, "merged"))
		if !slices.Equal(sorted(got.Names()), sorted(want.Names())) {
			t.Errorf("%s: tensors %v, want %v", name, got.Names(), want.Names())
			continue
		}
		off, all := compareMerged(t, name, got, want, c.Merged)
		t.Logf("%s: %d of %d merged elements differ", name, off, all)
		if c.Type != "float32" && off*50 > all || all == 0 {
			t.Errorf("%s: %d of %d merged elements differ", name, off, all)
		}
	}
}

// compareMerged counts the elements of merged weights that differ, and all of them.
func compareMerged(t *testing.T, name string, got, want *safetensors.Folder, merged []string) (off, all int) {
	t.Helper()
	for _, tensor := range want.Names() {
		a, b := bytesOfTensor(t, got, tensor), bytesOfTensor(t, want, tensor)
		if !slices.Contains(merged, tensor) {
			if !slices.Equal(a, b) {
				t.Errorf("%s: %s has changed without an adapter", name, tensor)
			}
			continue
		}
		i, _ := want.Info(tensor)
		worst, differ, n := unitsApart(a, b, i.DType)
		off, all = off+differ, all+n
		if limit := map[bool]int64{true: 64, false: 1}[i.DType == "F32"]; worst > limit {
			t.Errorf("%s: %s is off by %d units in the last place", name, tensor, worst)
		}
	}
	return off, all
}

// Claim: an adapter that does not fit the model, or is none, is one error that names the file and
// the tensor or the setting, and nothing is written.
func TestMergeRefusals(t *testing.T) {
	from := golden.Dir(t, "merge", "llama-bf16-lora")
	base := filepath.Join(from, "base")
	for _, w := range []struct{ old, new, says string }{
		{`"peft_type": "LORA"`, `"peft_type": "IA3"`, `peft_type is "IA3"; only LORA is supported`},
		{`"modules_to_save": null`, `"modules_to_save": ["lm_head"]`, "lm_head.weight is missing"},
		{`"init_lora_weights": true`, `"init_lora_weights": "pissa"`, "init_lora_weights is pissa"},
		{`"target_modules": [`, `"target_modules": ["lm_head", `, "lm_head.lora_A.weight is missing"},
		{`"target_modules": [`, `"target_modules": ["nothing", `, `target module "nothing" matches no module of the model`},
		{`"target_modules": [`, `"target_modules": "((", "x": [`, `pattern "^(?:(()$"`},
		{`"r": 4`, `"r": null`, "r is null; it must be a number"},
		{`"lora_alpha": 8`, `"lora_alpha": null`, "lora_alpha is null; it must be a number"},
		{`"r": 4`, `"r": 5`, "has the shape"},
		{`"use_dora": false`, `"use_dora": true`, "lora_magnitude_vector is missing"},
		{`"layers_to_transform": null`, `"layers_to_transform": [0]`, "belongs to no module that adapter_config.json adapts"},
	} {
		dir := t.TempDir()
		if !strings.Contains(w.says, "missing") && !strings.Contains(w.says, "belongs") && !strings.Contains(w.says, "shape") {
			w.says = "adapter_config.json: " + w.says
		}
		config, err := os.ReadFile(filepath.Join(from, "adapter", "adapter_config.json"))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(config), w.old, w.new, 1)
		if changed == string(config) {
			t.Fatalf("no %s in\n%s", w.old, config)
		}
		weights, err := os.ReadFile(filepath.Join(from, "adapter", "adapter_model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"adapter_config.json": []byte(changed), "adapter_model.safetensors": weights} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(dir, "out")
		if _, _, err := call("--input", base, "--adapter", dir, "--to", "hf", "--output", out); err == nil || !strings.Contains(err.Error(), w.says) || !strings.Contains(err.Error(), dir) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: code %d, %v, want %s", w.new, exitcode.CodeOf(err), err, w.says)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: the output was written", w.new)
		}
	}
}

// Claim: an adapter with a NaN is refused by its own name, merged or alone.
func TestMergeRefusesNaN(t *testing.T) {
	from, dir := golden.Dir(t, "merge", "llama-bf16-lora"), t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, "adapter", "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(from, "adapter", "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // the last element of the last tensor
		weights[len(weights)-1-i] = 0x7f | byte(i&1)<<7
	}
	for name, data := range map[string][]byte{"adapter_config.json": config, "adapter_model.safetensors": weights} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range [][]string{{"--to", "hf"}, {"--to", "gguf", "--adapter-only"}} {
		out := filepath.Join(t.TempDir(), "out")
		_, _, err := call(append([]string{"--input", filepath.Join(from, "base"), "--adapter", dir, "--output", out}, to...)...)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "adapter_model.safetensors")) || !strings.Contains(err.Error(), "is NaN or infinite") {
			t.Errorf("%v: %v", to, err)
		}
	}
}

func openFolder(t *testing.T, dir string) *safetensors.Folder {
	t.Helper()
	f, err := safetensors.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func bytesOfTensor(t *testing.T, f *safetensors.Folder, name string) []byte {
	t.Helper()
	i, _ := f.Info(name)
	raw := make([]byte, i.Bytes)
	if err := f.ReadAt(name, raw, 0); err != nil {
		t.Fatal(err)
	}
	return raw
}

// unitsApart counts how far apart numbers are in their type's order.
func unitsApart(a, b []byte, dtype string) (worst int64, differ, n int) {
	width := 2
	if dtype == "F32" {
		width = 4
	}
	order := func(raw []byte) int64 {
		v, sign := int64(0), int64(1)<<(8*width-1)
		for i := range width {
			v |= int64(raw[i]) << (8 * i)
		}
		if v >= sign {
			return sign - v
		}
		return v
	}
	for at := 0; at < len(a); at += width {
		d := int64(math.Abs(float64(order(a[at:]) - order(b[at:]))))
		if worst, n = max(worst, d), n+1; d > 0 {
			differ++
		}
	}
	return worst, differ, n
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// Claim (golden/qlora): --merge-rounded gives what merging into the folder that transformers quantised gives;
// and the reported distance is that of the merged folders, module by module.
func TestMergeReportsTheDistance(t *testing.T) {
	for _, name := range []string{"llama-f32-double", "llama-f32-single"} {
		dir, out := golden.Dir(t, "qlora", name), t.TempDir()
		flags := []string{"--adapter", filepath.Join(dir, "adapter"), "--to", "hf"}
		merge := func(from, to string, more ...string) (*safetensors.Folder, string) {
			t.Helper()
			_, notes, err := call(slices.Concat([]string{"--input", filepath.Join(dir, from), "--output", filepath.Join(out, to)}, flags, more)...)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, notes)
			}
			return openFolder(t, filepath.Join(out, to)), notes
		}
		over := []string{"--adapter-over", "nf4"}
		if strings.HasSuffix(name, "double") {
			over = append(over, "--double-quant")
		}
		plain, merged := merge("base", "plain", over...)
		rounded, _ := merge("base", "rounded", append(over, "--merge-rounded")...)
		theirs, _ := merge("quantised", "theirs")
		base := openFolder(t, filepath.Join(dir, "base"))
		most := 0.0
		for _, tensor := range theirs.Names() {
			a, b := floats(t, rounded, tensor), floats(t, theirs, tensor)
			off := 0.0
			for i := range a {
				off = math.Max(off, math.Abs(float64(a[i])-float64(b[i])))
			}
			if off > 2e-6 { // the offset of scales is summed in another order
				t.Errorf("%s: %s is off by %g", name, tensor, off)
			}
			p, w := floats(t, plain, tensor), floats(t, base, tensor)
			if q, u := norm(a, p), norm(p, w); u > 0 {
				most = math.Max(most, q/u)
			}
		}
		if most == 0 || !strings.Contains(merged, " to "+strconv.FormatFloat(most, 'g', 3, 64)+" in ") {
			t.Errorf("%s: the largest ratio is %.3g, told is %s", name, most, merged)
		}
	}
}

func floats(t *testing.T, f *safetensors.Folder, name string) []float32 {
	t.Helper()
	i, _ := f.Info(name)
	wide := make([]float64, i.Bytes/4)
	if !safetensors.Decode(wide, i.DType, bytesOfTensor(t, f, name)) {
		t.Fatalf("%s is %s", name, i.DType)
	}
	out := make([]float32, len(wide))
	for i, v := range wide {
		out[i] = float32(v)
	}
	return out
}

func norm(a, b []float32) (sum float64) {
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum)
}
