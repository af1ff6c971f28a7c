package hf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

func openMapping(t *testing.T, config string) (*Config, *Mapping) {
	t.Helper()
	c, err := ReadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mp, err := NewMapping(c.Model, c.Family)
	if err != nil {
		t.Fatal(err)
	}
	return c, mp
}

func openFile(t *testing.T, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// reader reads theirs as ToGlobal wants it, under a prefix.
func reader(f *safetensors.File, prefix string) func(string) ([]float64, []int64, error) {
	return func(name string) ([]float64, []int64, error) {
		values, err := f.Float64(prefix + name)
		info, _ := f.Info(prefix + name)
		return values, info.Shape, err
	}
}

// Every golden model of a family: the mapping names exactly the tensors of its
// weights, and going to Megatron's names and back changes nothing.
func TestGoldenModelsRoundTrip(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Dir(t, "model"), "*", ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range files {
		dir := filepath.Dir(config)
		name := filepath.Base(dir)
		if _, err := ReadConfig(config); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "weights.safetensors")); err == nil { // some cases take another's
			t.Run(name, func(t *testing.T) { modelRoundTrip(t, dir) })
		}
	}
	if len(files) < 9 {
		t.Errorf("only %d cases", len(files))
	}
}

func modelRoundTrip(t *testing.T, dir string) {
	_, mp := openMapping(t, filepath.Join(dir, ConfigName))
	f := openFile(t, filepath.Join(dir, "weights.safetensors"))
	var names []string
	for _, src := range mp.Stored() {
		names = append(names, src.Name)
		roundTrip(t, mp, f, "", src.Name)
	}
	want := slices.DeleteFunc(f.Names(), func(n string) bool { return n == "padding_rows" })
	slices.Sort(want)
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("mapping has %v, the file %v", names, want)
	}
}

// roundTrip takes one of their tensors to Megatron's name and back.
func roundTrip(t *testing.T, mp *Mapping, f *safetensors.File, prefix, name string) {
	t.Helper()
	want, err := f.Float64(prefix + name)
	if err != nil {
		t.Fatal(err)
	}
	got, shape, err := ToHF(mp, name, func(global string) ([]float64, error) {
		return ToGlobal(mp, global, reader(f, prefix))
	})
	info, _ := f.Info(prefix + name)
	if err != nil || !slices.Equal(got, want) || !slices.Equal(shape, info.Shape) {
		t.Errorf("%s: comes back with shape %v, %v", name, shape, err)
	}
}

// The names of grad.* and param_after_1.* in expected files are the mapping's.
func TestGoldenGradientNames(t *testing.T) {
	root := golden.Dir(t, "model")
	for _, name := range []string{"gpt2-tanh", "llama", "qwen2", "bloom", "llama-rope-scaled"} {
		_, mp := openMapping(t, filepath.Join(root, name, ConfigName))
		f := openFile(t, filepath.Join(root, name, "expected.safetensors"))
		grads := 0
		for _, src := range mp.Sources() {
			if info, ok := f.Info("grad." + src.Name); ok && slices.Equal(info.Shape, src.Shape) {
				grads++
				roundTrip(t, mp, f, "grad.", src.Name)
			}
		}
		if grads != len(mp.Sources()) {
			t.Errorf("%s: %d of %d gradients found", name, grads, len(mp.Sources()))
		}
	}
}

// Megatron-LM itself, given the same weights, had them under these names in
// this order: parameters and gradients of one rank (GPT-2) and of two (Llama:
// grouped QKV, [gate; up] of each rank).
func TestMappingEqualsMegatron(t *testing.T) {
	root := golden.Dir(t, "model")
	for _, c := range []struct {
		model, ranks string
		tp           int
	}{{"gpt2-tanh", "megatron-gpt2-tp1", 1}, {"llama", "megatron-llama-tp2-sp", 2}} {
		_, mp := openMapping(t, filepath.Join(root, c.model, ConfigName))
		weights := openFile(t, filepath.Join(root, c.model, "weights.safetensors"))
		ranks := openFile(t, filepath.Join(root, c.ranks, "ranks.safetensors"))
		compared := 0
		for _, global := range mp.GlobalNames() {
			if _, ok := ranks.Info("rank0.param." + global); !ok {
				continue // files of several ranks hold some layers only
			}
			compared++
			ours, err := ToGlobal(mp, global, reader(weights, ""))
			if err != nil {
				t.Fatal(err)
			}
			if theirs := joinRanks(t, ranks, global, c.tp); !slices.Equal(ours, theirs) {
				t.Errorf("%s: %s differs from Megatron's", c.model, global)
			}
		}
		if compared < 9 {
			t.Errorf("%s: only %d tensors compared", c.model, compared)
		}
	}
}

// joinRanks puts tp shards of a Megatron tensor together (Megatron-LM, tensor_parallel/layers.py:
// rows of linear_proj and linear_fc2 are uncut, gated fc1 is [gate_r; up_r]).
func joinRanks(t *testing.T, f *safetensors.File, global string, tp int) []float64 {
	var parts [][]float64
	for r := range tp {
		v, err := f.Float64("rank" + string(rune('0'+r)) + ".param." + global)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, v)
	}
	if tp == 1 || strings.Contains(global, "norm") {
		return parts[0]
	}
	info, _ := f.Info("rank0.param." + global)
	var out []float64
	switch {
	case strings.HasSuffix(global, "linear_proj.weight") || strings.HasSuffix(global, "linear_fc2.weight"):
		for row := range info.Shape[0] {
			for _, p := range parts {
				out = append(out, p[row*info.Shape[1]:(row+1)*info.Shape[1]]...)
			}
		}
	case strings.HasSuffix(global, "linear_fc1.weight"):
		for _, half := range []int{0, 1} {
			for _, p := range parts {
				out = append(out, p[half*len(p)/2:(half+1)*len(p)/2]...)
			}
		}
	default:
		for _, p := range parts {
			out = append(out, p...)
		}
	}
	return out
}

// Folders that transformers 4.57 and 5.23 wrote: f32, bf16, f16, sharded, bare
// names. All hold one family's weights; see golden/checkpoint/README.md.
func TestGoldenFolders(t *testing.T) {
	root := golden.Dir(t, "checkpoint")
	for name, c := range map[string]struct {
		like  string
		round string // what the like's values must be rounded to
	}{
		"gpt2-hf-f32": {"gpt2-hf-f32", "F32"}, "gpt2-hf-sharded": {"gpt2-hf-f32", "F32"}, "gpt2-hf-bare": {"gpt2-hf-f32", "F32"},
		"gpt2-hf-bf16": {"gpt2-hf-f32", "BF16"}, "gpt2-hf-f16": {"gpt2-hf-f32", "F16"}, "gpt2-l4-hf": {"gpt2-l4-hf", "F32"},
		"llama-hf-f32": {"llama-hf-f32", "F32"}, "llama-hf-bf16-sharded-v4": {"llama-hf-f32", "BF16"}, "qwen2-hf-f32": {"qwen2-hf-f32", "F32"},
		"mixtral-hf-f32": {"mixtral-hf-f32", "F32"},
	} {
		f, err := Open(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		like, err := Open(filepath.Join(root, c.like))
		if err != nil {
			t.Fatal(err)
		}
		for _, global := range f.Mapping.GlobalNames() {
			got, err1 := f.Tensor(global)
			want, err2 := like.Tensor(global)
			if err1 != nil || err2 != nil {
				t.Fatal(name, err1, err2)
			}
			if !slices.Equal(got, rounded(want, c.round)) {
				t.Errorf("%s: %s differs from %s rounded to %s", name, global, c.like, c.round)
			}
		}
		_, _ = f.Close(), like.Close()
	}
}

func rounded(values []float32, dtype string) []float32 {
	raw, _ := safetensors.Encode(nil, dtype, values)
	wide := make([]float64, len(values))
	safetensors.Decode(wide, dtype, raw)
	out := make([]float32, len(values))
	for i, v := range wide {
		out[i] = float32(v)
	}
	return out
}

// golden/checkpoint/bad: config and weights that do not fit each other.
func TestRefusesGoldenBadFolders(t *testing.T) {
	root := golden.Dir(t, "checkpoint", "bad")
	for name, says := range map[string]string{
		"config-not-json": "config.json", "shape-vs-config": "transformer.wte.weight", "layer-missing": "transformer.h.1.",
		"heads-do-not-divide": "n_head", "index-missing-shard": "model-00002-of-00002.safetensors", "good-hf": "", "good-sharded": "",
	} {
		f, err := Open(filepath.Join(root, name))
		if err == nil {
			_ = f.Close()
		}
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", name, err, says)
		}
	}
}
